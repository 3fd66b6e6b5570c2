"""Signs of life between ranks: each sends one byte to all others that have come, again and again."""

import selectors
import socket
import struct
import time
from contextlib import suppress
from queue import SimpleQueue

BEAT_SECONDS = 0.5
"""How often each rank gives a sign of life."""
PAUSE_SECONDS = 0.02
"""How long at most a rank takes to notice that its own program has ended."""
GRACE_SECONDS = 0.2
"""How long after the end of a connection what was said before may take to arrive."""
LOST = struct.Struct("<BI")
"""The last sign of a rank that ends as one is lost: a 2, and which one. It is itself if its program failed."""

RESUME = (
    "start all ranks again, as torchrun --max-restarts does, and give what loader.state_dict() returned last to "
    "load_state_dict: each epoch goes on at the next mini-batch"
)


class RankLostError(ConnectionError):
    """Another rank ended, froze or could not be reached, so that its part can't be read any more."""


class LostError(Exception):
    """A rank is lost.

    Args:
        rank: Which one.
        how: How that was noticed.
    """

    def __init__(self, rank: int, how: str) -> None:
        super().__init__(f"rank {rank}: {how}")
        self.rank, self.how = rank, how


class Heartbeat:
    """Sends signs of life to all other ranks, and listens for theirs, in the thread that calls `beat`.

    Each sign says whether the rank leaves: it asks nothing any more, and ends as soon as all others leave. A rank that
    ends because another one is lost says so, so that nobody takes it for the cause.

    Args:
        rank: This rank.
        silent_seconds: After how long without a sign another rank counts as lost.
    """

    def __init__(self, rank: int, silent_seconds: float) -> None:
        self.rank, self.silent_seconds = rank, silent_seconds
        self.left: set[int] = set()
        """The other ranks that leave."""
        self._arrived: SimpleQueue[tuple[int, socket.socket]] = SimpleQueue()
        self._leaving = False
        self._to: dict[int, socket.socket] = {}
        self._heard: dict[int, float] = {}
        self._gone: dict[int, float] = {}
        self._selector = selectors.DefaultSelector()
        self._next_beat = 0.0

    def begin(self, rank: int, connection: socket.socket) -> None:
        """Begin to give signs on a connection to another rank."""
        self._to[rank] = connection
        self._watch(rank, connection)

    def take(self, rank: int, connection: socket.socket) -> None:
        """Take a connection on which another rank gives its signs. Any thread may call this."""
        self._arrived.put((rank, connection))

    def beat(self, leaving: bool) -> bool:
        """Send and receive signs for a short while; return whether all ranks that have come leave.

        Args:
            leaving: Whether this rank leaves.

        Raises:
            LostError: The connection to another rank ended, or it gave no sign.
        """
        while not self._arrived.empty():
            self._watch(*self._arrived.get())
        for key, _ in self._selector.select(PAUSE_SECONDS):
            self._hear(key.data, key.fileobj)  # type: ignore[arg-type]
        now = time.monotonic()
        if leaving != self._leaving or now >= self._next_beat:
            self._leaving, self._next_beat = leaving, now + BEAT_SECONDS
            self._send(bytes([leaving]))
        for rank, heard in self._heard.items():
            if leaving and rank in self.left:
                continue
            if now - self._gone.get(rank, now) > GRACE_SECONDS:
                raise LostError(rank, "its connection ended")
            if now - heard > self.silent_seconds:
                raise LostError(rank, f"it gave no sign of life for {self.silent_seconds:g} s")
        return leaving and len(self.left) == len(self._to)

    def tell_lost(self, rank: int) -> None:
        """Tell the other ranks that this one ends because a rank is lost, perhaps itself."""
        self._send(LOST.pack(2, rank))

    def _send(self, sign: bytes) -> None:
        for connection in self._to.values():
            with suppress(OSError):  # a full queue of who is silent; of the end, the selector tells
                connection.send(sign)

    def close(self) -> None:
        """Close all connections. Does nothing the second time."""
        for key in list((self._selector.get_map() or {}).values()):
            key.fileobj.close()  # type: ignore[union-attr]
        while not self._arrived.empty():
            self._arrived.get()[1].close()
        self._selector.close()

    def _watch(self, rank: int, connection: socket.socket) -> None:
        """Listen for signs on a connection."""
        connection.setblocking(False)
        self._heard[rank] = time.monotonic()
        self._selector.register(connection, selectors.EVENT_READ, rank)

    def _hear(self, rank: int, connection: socket.socket) -> None:
        """Receive the signs that have come on a connection."""
        try:
            signs = connection.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            signs = b""
        if signs:
            begin = signs.find(2)
            if begin >= 0 and len(signs) >= begin + LOST.size:
                lost = LOST.unpack_from(signs, begin)[1]
                raise LostError(lost, "its program failed" if lost == rank else f"rank {rank} lost it")
            self._heard[rank] = time.monotonic()
            (self.left.add if signs[-1] else self.left.discard)(rank)
            return
        self._gone.setdefault(rank, time.monotonic())
        self._selector.unregister(connection)
        connection.close()
