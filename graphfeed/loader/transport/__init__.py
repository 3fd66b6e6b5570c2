"""What carries mini-batches across a cut of the pipeline.

Threads pass them through a bounded queue (`ThreadChannel`), CUDA streams by events (`hand_over`), and processes through
sockets and shared memory: `encode` splits an object into a pickle and the bytes of its arrays, an `Outbox` sends both
to an `Inbox`, as a frame of `graphfeed.storage.memory` in an `Arena` that both map, and a `RecordSocket` moves the
small records that announce messages. Only what the loader needs is here; channels for the user's own processes build on
it in `graphfeed.channels`.
"""

from graphfeed.loader.transport.arena import ARENA_BYTES, ArenaReader
from graphfeed.loader.transport.mailbox import (
    BLOCK,
    FILE,
    INLINE,
    PREFIX,
    TIMEOUT_SECONDS,
    Inbox,
    MessageReader,
    Outbox,
    Record,
    open_mailbox,
    require_linux,
)
from graphfeed.loader.transport.pickling import decode, encode
from graphfeed.loader.transport.record_socket import RecordSocket
from graphfeed.loader.transport.thread_channel import Closed

__all__ = [
    "ARENA_BYTES", "BLOCK", "FILE", "INLINE", "PREFIX", "TIMEOUT_SECONDS", "ArenaReader", "Closed", "Inbox",
    "MessageReader", "Outbox", "Record", "RecordSocket", "decode", "encode", "open_mailbox", "require_linux",
]  # fmt: skip
