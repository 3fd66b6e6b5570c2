"""Transfers mini-batches across a cut: thread queues, CUDA stream events, shared memory between processes.

For processes, `encode` splits an object into a pickle and the bytes of its arrays, which an `Outbox` sends to an
`Inbox` through an `Arena` that both map. The channels for users' processes in `graphfeed.channels` build on it.
"""

from graphfeed.loader.transport.arena import ArenaReader
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
    "BLOCK", "FILE", "INLINE", "PREFIX", "TIMEOUT_SECONDS", "ArenaReader", "Closed", "Inbox", "MessageReader", "Outbox",
    "Record", "RecordSocket", "decode", "encode", "open_mailbox", "require_linux",
]  # fmt: skip
