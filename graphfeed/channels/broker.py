"""The broker of a channel: a thread of the process that made the channel, which all its clients connect to."""

import json
import os
import secrets
import selectors
import socket
import struct
import threading
import weakref
from contextlib import suppress

from graphfeed.channels.bounded_queue_state import FAILED, NOTHING, OK, STATISTICS, BoundedQueueState, Item, Peer, Reply
from graphfeed.loader.transport import BLOCK, FILE, INLINE, PREFIX, Closed, Record, RecordSocket, require_linux
from graphfeed.ops.memory import Bytes, MemoryFile
from graphfeed.ops.process import after_fork_in_child

GET, CANCEL, WITHDRAW, END_EPOCH, LOOK, LEAVE = range(16, 22)
"""Requests, beside the records of messages: receive one, or stop waiting for it; take back the message that was sent
last; end the epoch; read the statistics; leave the channel."""
CREDENTIALS = struct.Struct("@iII")


def control_record(kind: int, text: str = "") -> bytes:
    return Record(kind).pack() + text.encode()


class Connection:
    """The broker's side of a client's connection. A client is a producer once it sends, a consumer once it receives."""

    def __init__(self, sock: socket.socket, process: int) -> None:
        self.socket = RecordSocket(sock)
        self.process = process
        self.producer: Peer | None = None
        self.consumer: Peer | None = None
        self.arena: MemoryFile | None = None

    def send(self, record: bytes, file: MemoryFile | None = None) -> None:
        # Without waiting. If nobody receives the record, the end of the connection is noticed later.
        with suppress(Closed, OSError):
            self.socket.send(record, None if file is None else file.descriptor, 0)


class Broker:
    """Forwards the records of messages from producers to consumers; the bytes of the messages stay where they are."""

    def __init__(self, state: BoundedQueueState) -> None:
        require_linux()
        self.state = state
        self.process = os.getpid()
        # An abstract address is not a file, and vanishes with the socket.
        self.address = f"\0graphfeed-{secrets.token_hex(16)}"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.setblocking(False)
        self.listener.bind(self.address)
        self.listener.listen(128)
        self.waker, self.woken = socket.socketpair()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.woken, selectors.EVENT_READ)
        self.connections: dict[int, Connection] = {}
        self.by_peer: dict[Peer, Connection] = {}
        self.thread = threading.Thread(target=self._run, name="graphfeed-channel", daemon=True)
        BROKERS.add(self)
        self.thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self.waker.send(b"x")  # the thread wakes, ends, and closes all connections

    def abandon(self) -> None:
        """Close all descriptors, at the end of the thread or in a forked process."""
        for sock in (self.listener, self.waker, self.woken):
            sock.close()
        for connection in self.connections.values():
            connection.socket.close()
        self.selector.close()
        self.connections.clear()
        self.by_peer.clear()
        self.state.clear()

    def _run(self) -> None:
        try:
            while True:
                for key, _ in self.selector.select():
                    if key.fileobj is self.woken:
                        return
                    if key.fileobj is self.listener:
                        self._accept()
                    else:
                        self._receive(self.connections[key.fd])
                self._send_replies(self.state.step())
        finally:
            self.abandon()

    def _accept(self) -> None:
        with suppress(OSError):
            sock, _ = self.listener.accept()
            credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
            process, user, _ = CREDENTIALS.unpack(credentials)
            # Any process may find the address; those of other users are not served.
            if user != os.getuid():
                sock.close()
                return
            self.connections[sock.fileno()] = Connection(sock, process)
            self.selector.register(sock, selectors.EVENT_READ)

    def _receive(self, connection: Connection) -> None:
        try:
            record, descriptor = connection.socket.receive(0)
        except TimeoutError:
            return
        except Closed:
            # A client that goes sends LEAVE first, so this one's process died.
            self._remove(connection, "died")
        except OSError:
            reason = f"process {os.getpid()}, which made the channel, has too many open files; raise ulimit -n"
            connection.send(control_record(FAILED, reason))
        else:
            file = None if descriptor is None else MemoryFile(descriptor)
            if record.size < PREFIX.size:
                self._remove(connection, "died")
            else:
                self._dispatch(connection, record, file)

    def _dispatch(self, connection: Connection, data: Bytes, file: MemoryFile | None) -> None:
        record, state = Record.unpack(data), self.state
        producer, consumer = connection.producer, connection.consumer
        if record.kind in (INLINE, BLOCK, FILE):
            if record.kind == BLOCK:
                # Only a producer's first block brings its arena's descriptor, but every consumer needs it.
                connection.arena = file = file or connection.arena
            state.put(self._producer_of(connection), Item(data.tobytes(), record.size, file))
        elif record.kind == WITHDRAW and producer is not None and producer.offer is not None:
            state.withdraw(producer)
            connection.send(control_record(NOTHING))
        elif record.kind == END_EPOCH:
            state.end(self._producer_of(connection))
            connection.send(control_record(OK))
        elif record.kind == GET:
            if consumer is None:
                consumer = connection.consumer = state.add_consumer(f"consumer process {connection.process}")
                self.by_peer[consumer] = connection
            state.get(consumer)
        elif record.kind == CANCEL and consumer is not None and state.cancel(consumer):
            connection.send(control_record(NOTHING))
        elif record.kind == LOOK:
            connection.send(control_record(STATISTICS, json.dumps(state.statistics())))
        elif record.kind == LEAVE:
            error = text_of(data)
            self._remove(connection, f"failed: {error}" if error else None)

    def _producer_of(self, connection: Connection) -> Peer:
        if connection.producer is None:
            connection.producer = self.state.add_producer(f"producer process {connection.process}")
            self.by_peer[connection.producer] = connection
        return connection.producer

    def _remove(self, connection: Connection, failure: str | None) -> None:
        for peer in (connection.producer, connection.consumer):
            if peer is not None:
                self.state.remove(peer, None if failure is None else f"{peer.name} {failure}")
                del self.by_peer[peer]
        sock = connection.socket.sock
        self.selector.unregister(sock)
        del self.connections[sock.fileno()]
        sock.close()

    def _send_replies(self, replies: list[Reply]) -> None:
        for peer, kind, what in replies:
            connection = self.by_peer[peer]
            if isinstance(what, Item):
                connection.send(what.record, what.memory)
            else:
                connection.send(control_record(kind, what or ""))


def text_of(record: Bytes) -> str:
    return bytes(record[PREFIX.size :]).decode(errors="replace")


BROKERS: weakref.WeakSet[Broker] = weakref.WeakSet()


@after_fork_in_child
def abandon_all() -> None:
    # They are the parent's. With copies of its sockets here, nobody would notice its end.
    for broker in list(BROKERS):
        broker.abandon()
