"""Broker of a channel: a thread of the process that created the channel, to which all clients connect."""

import json
import os
import secrets
import selectors
import socket
import struct
import threading
import weakref
from contextlib import suppress
from functools import partial
from typing import Any

from graphfeed.channels.bounded_queue import FAILED, OK, BoundedQueue, Client, Item
from graphfeed.loader.transport import BLOCK, FILE, INLINE, PREFIX, Closed, Record, RecordSocket, require_linux
from graphfeed.ops.memory import Bytes, MemoryFile
from graphfeed.ops.process import after_fork_in_child

GET, STOP, END_EPOCH, LOOK, LEAVE = range(16, 21)
"""Requests, in addition to records of messages: receive a message; stop waiting for a reply; end the epoch; read the
statistics; leave the channel."""
CREDENTIALS = struct.Struct("@iII")


def control_record(kind: int, text: str = "") -> bytes:
    return Record(kind).pack() + text.encode()


def send_reply(sock: RecordSocket, kind: int, what: Any) -> bool:
    """Send a reply without waiting; return False if the client is gone."""
    record, file = (what.record, what.memory) if isinstance(what, Item) else (control_record(kind, what), None)
    try:
        sock.send(record, None if file is None else file.descriptor, 0)
    except (Closed, OSError):
        return False
    return True


class Broker:
    """Forwards records of messages from producers to consumers. The bytes of the messages are not copied."""

    def __init__(self, queue: BoundedQueue) -> None:
        require_linux()
        self.queue = queue
        self.process = os.getpid()
        # An abstract address is not a file, and vanishes with the socket.
        self.address = f"\0graphfeed-{secrets.token_hex(16)}"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.setblocking(False)
        self.listener.bind(self.address)
        self.listener.listen(128)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.is_closed = False
        self.thread = threading.Thread(target=self._run, name="graphfeed-channel", daemon=True)
        BROKERS.add(self)
        self.thread.start()

    def close(self) -> None:
        self.is_closed = True
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes all connections and ends

    def abandon(self) -> None:
        """Close all descriptors, when the thread ends or in a forked process."""
        for key in list((self.selector.get_map() or {}).values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self.selector.close()
        self.queue.drop()

    def _run(self) -> None:
        try:
            while not self.is_closed:
                for key, _ in self.selector.select():
                    if key.data is None:
                        self._accept()
                    else:
                        self._receive(*key.data)
                self.queue.step()
        finally:
            self.abandon()

    def _accept(self) -> None:
        with suppress(OSError):
            sock, _ = self.listener.accept()
            credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
            process, user, _ = CREDENTIALS.unpack(credentials)
            # Any process may find the address, but processes of other users are rejected.
            if user != os.getuid():
                sock.close()
                return
            records = RecordSocket(sock)
            client = Client(process, partial(send_reply, records))
            self.selector.register(sock, selectors.EVENT_READ, (records, client))

    def _receive(self, sock: RecordSocket, client: Client) -> None:
        try:
            data, descriptor = sock.receive(0)
        except TimeoutError:
            return
        except Closed:
            # A leaving client sends LEAVE first, so the process of this one died.
            self._remove(sock, client, "died")
        except OSError:
            reason = f"process {os.getpid()}, which created the channel, has too many open files; raise ulimit -n"
            client.reply(FAILED, reason)
        else:
            file = None if descriptor is None else MemoryFile(descriptor)
            if data.size < PREFIX.size:
                self._remove(sock, client, "died")
            else:
                self._handle(sock, client, data, file)

    def _handle(self, sock: RecordSocket, client: Client, data: Bytes, file: MemoryFile | None) -> None:
        record = Record.unpack(data)
        if record.kind in (INLINE, BLOCK, FILE):
            if record.kind == BLOCK:
                # A producer sends its arena's descriptor only with its first block, but every consumer needs it.
                client.arena = file = file or client.arena
            self.queue.put(client, Item(data.tobytes(), record.size, file))
        elif record.kind == GET:
            self.queue.get(client)
        elif record.kind == STOP:
            self.queue.stop(client)
        elif record.kind == END_EPOCH:
            self.queue.end(client)
            client.reply(OK, "")
        elif record.kind == LOOK:
            client.reply(OK, json.dumps(self.queue.statistics()))
        elif record.kind == LEAVE:
            error = text_of(data)
            self._remove(sock, client, f"failed: {error}" if error else None)

    def _remove(self, sock: RecordSocket, client: Client, failure: str | None) -> None:
        self.queue.remove(client, failure)
        self.selector.unregister(sock.sock)
        sock.close()


def text_of(record: Bytes) -> str:
    return bytes(record[PREFIX.size :]).decode(errors="replace")


BROKERS: weakref.WeakSet[Broker] = weakref.WeakSet()


@after_fork_in_child
def abandon_all() -> None:
    # They belong to the parent. With copies of its sockets here, clients would not notice its end.
    for broker in list(BROKERS):
        broker.abandon()
