"""Between processes of one machine: messages through memory that both see."""

from graphfeed.loader.channels.mailbox import Inbox, Outbox, open_mailbox
from graphfeed.loader.channels.pickling import decode, encode

__all__ = ["Inbox", "Outbox", "decode", "encode", "open_mailbox"]
