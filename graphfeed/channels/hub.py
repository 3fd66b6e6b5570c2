"""The middle of a channel: a thread of the process that made it, where the others call."""

import json
import os
import secrets
import selectors
import socket
import struct
import threading
import weakref
from array import array
from contextlib import suppress
from typing import Any

from graphfeed.channels.exchange import FAILED, NOTHING, OK, STATE, Exchange, Item, Peer, Reply
from graphfeed.loader.transport.arena import require_linux
from graphfeed.loader.transport.ear import EXTRA_BYTES
from graphfeed.loader.transport.mailbox import PREFIX, RECORD_BYTES, with_descriptor, word

PRODUCER, CONSUMER, WITHDRAW, ENDED, LEAVE, WANT, CANCEL, LOOK = range(16, 24)
"""What a client says, beside the records of its messages: who it is, and what it wants."""
CREDENTIALS = struct.Struct("@iII")
LARGEST_MESSAGE = 2


class Memory:
    """A descriptor of what a record refers to; closed with the last record that does."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self) -> None:
        os.close(self.descriptor)


class Caller:
    """One connection."""

    def __init__(self, sock: socket.socket, process: int) -> None:
        self.sock = sock
        self.process = process
        self.peer: Peer | None = None
        self.arena: Memory | None = None


class Hub:
    """Moves the records of messages from producers to consumers; their bytes stay where they are.

    It listens under a random abstract address, which is no file and goes with it, and answers processes of the same
    user only. A connection that ends without a word is a process that died.
    """

    def __init__(self, exchange: Exchange) -> None:
        require_linux()
        self.exchange = exchange
        self.process = os.getpid()
        self.address = f"\0graphfeed-{secrets.token_hex(16)}"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.setblocking(False)
        self.listener.bind(self.address)
        self.listener.listen(128)
        self.waker, self.woken = socket.socketpair()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.woken, selectors.EVENT_READ)
        self.callers: dict[int, Caller] = {}
        self.by_peer: dict[int, Caller] = {}
        self.thread = threading.Thread(target=self._run, name="graphfeed-channel", daemon=True)
        HUBS.add(self)
        self.thread.start()

    def close(self) -> None:
        """End the thread and all connections."""
        with suppress(OSError):
            self.waker.send(b"x")

    def abandon(self) -> None:
        """Close the copies of descriptors that a forked process has."""
        for sock in (self.listener, self.waker, self.woken, *(caller.sock for caller in self.callers.values())):
            sock.close()
        self.selector.close()
        self.callers.clear()
        self.by_peer.clear()
        self.exchange.clear()

    def _run(self) -> None:
        try:
            while True:
                for key, _ in self.selector.select():
                    if key.fileobj is self.woken:
                        return
                    if key.fileobj is self.listener:
                        self._accept()
                    else:
                        self._hear(self.callers[key.fd])
                self._answer(self.exchange.step())
        finally:
            self.abandon()

    def _accept(self) -> None:
        with suppress(OSError):
            sock, _ = self.listener.accept()
            credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
            process, user, _ = CREDENTIALS.unpack(credentials)
            if user != os.getuid():
                sock.close()
                return
            sock.setblocking(False)
            self.callers[sock.fileno()] = Caller(sock, process)
            self.selector.register(sock, selectors.EVENT_READ)

    def _hear(self, caller: Caller) -> None:
        try:
            record, extra, flags, _ = caller.sock.recvmsg(RECORD_BYTES, EXTRA_BYTES, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            record, extra, flags = b"", [], 0
        memory = Memory(array("i", extra[0][2])[0]) if extra else None
        if len(record) < PREFIX.size:
            self._leave(caller, self._describe(caller, "died"))
        elif flags & socket.MSG_CTRUNC:
            reason = f"process {os.getpid()}, which made the channel, has too many open files; raise ulimit -n"
            self._reply(caller, FAILED, reason)
        else:
            self._heed(caller, record, memory)

    def _heed(self, caller: Caller, record: bytes, memory: Memory | None) -> None:
        kind, size, *_ = PREFIX.unpack_from(record)
        peer, exchange = caller.peer, self.exchange
        if kind in (PRODUCER, CONSUMER):
            role = "producer" if kind == PRODUCER else "consumer"
            name = f"{role} process {caller.process}"
            peer = exchange.add_producer(name) if kind == PRODUCER else exchange.add_consumer(name)
            caller.peer = peer
            self.by_peer[id(peer)] = caller
        elif kind == LOOK:
            self._reply(caller, STATE, json.dumps(exchange.state()))
        elif kind == LEAVE:
            error = record[PREFIX.size :].decode(errors="replace")
            self._leave(caller, self._describe(caller, f"failed: {error}") if error else None)
        elif peer is not None:
            self._heed_peer(caller, peer, kind, Item(record, size, memory))

    def _heed_peer(self, caller: Caller, peer: Peer, kind: int, item: Item) -> None:
        if peer in self.exchange.consumers:
            if kind == WANT:
                self.exchange.want(peer)
            elif kind == CANCEL and self.exchange.cancel(peer):
                self._reply(caller, NOTHING)
        elif kind == WITHDRAW:
            if peer.offer is not None:
                self.exchange.withdraw(peer)
                self._reply(caller, NOTHING)
        elif kind == ENDED:
            self.exchange.end(peer)
            self._reply(caller, OK)
        elif kind <= LARGEST_MESSAGE:
            if kind == 1:
                caller.arena = item.memory = item.memory or caller.arena
            self.exchange.put(peer, item)

    def _describe(self, caller: Caller, what: str) -> str:
        peer = caller.peer
        return f"{peer.name if peer else f'process {caller.process}'} {what}"

    def _leave(self, caller: Caller, failure: str | None) -> None:
        if caller.peer is not None:
            self.exchange.leave(caller.peer, failure)
            del self.by_peer[id(caller.peer)]
        self.selector.unregister(caller.sock)
        del self.callers[caller.sock.fileno()]
        caller.sock.close()

    def _answer(self, replies: list[Reply]) -> None:
        for peer, kind, what in replies:
            caller = self.by_peer[id(peer)]
            if isinstance(what, Item):
                self._send(caller, what.record, what.memory)
            else:
                self._reply(caller, kind, what or "")

    def _reply(self, caller: Caller, kind: int, text: str = "") -> None:
        self._send(caller, word(kind) + text.encode(), None)

    def _send(self, caller: Caller, record: bytes, memory: Memory | None) -> None:
        # One that is gone is heard of by its connection's end.
        with suppress(OSError):
            extra: list[Any] = with_descriptor(None if memory is None else memory.descriptor)
            caller.sock.sendmsg([record], extra, socket.MSG_NOSIGNAL)


HUBS: weakref.WeakSet[Hub] = weakref.WeakSet()


def abandon_all() -> None:
    """Close in a forked process what belongs to its parent."""
    for hub in list(HUBS):
        hub.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=abandon_all)
