"""TLS, tokens and formats shared by all connections to other machines.

The servers and clients are in `graphfeed.distributed.servers`. Ranks use their own sockets
(`graphfeed.distributed.ranks`), but the TLS of this package.
"""

from graphfeed.distributed.wire.access import (
    TOKEN_VARIABLE,
    check_encryption,
    check_token,
    choose_token,
    is_loopback,
    join_address,
    listen,
    make_client_context,
    make_mutual_contexts,
    make_server_context,
    parse_address,
)
from graphfeed.distributed.wire.flight import FlightServer, call_options, import_flight, make_client, text_of
from graphfeed.distributed.wire.record_batches import check_schema, from_batch, import_arrow, to_batch

__all__ = [
    "TOKEN_VARIABLE", "FlightServer", "call_options", "check_encryption", "check_schema", "check_token", "choose_token",
    "from_batch", "import_arrow", "import_flight", "is_loopback", "join_address", "listen", "make_client",
    "make_client_context", "make_mutual_contexts", "make_server_context", "parse_address", "text_of", "to_batch",
]  # fmt: skip
