"""Heartbeats between ranks: each periodically sends one byte to all others."""

import selectors
import socket
import ssl
import struct
import time
import warnings
from contextlib import suppress
from queue import SimpleQueue

from graphfeed.ops.process import current_limits

FROZEN_SECONDS = 30.0
"""Limit for missing heartbeats of a rank whose machine answers. For comparison: sorting 10^7 numbers takes 10 s."""
DOUBT_SECONDS = 5.0
"""Time without heartbeats after which the other ranks warn of such a rank."""
PAUSE_SECONDS = 0.02
"""Upper bound of the time until a rank notices that its own program has ended."""
GRACE_SECONDS = 0.2
"""How long messages sent before the end of a connection may take to arrive."""
LOST = struct.Struct("<BI")
"""A rank's last heartbeat if it exits because a rank is lost: a 2, and the lost rank, itself if its program failed."""

RESUME = (
    "restart all ranks, as torchrun --max-restarts does, and pass the last result of loader.state_dict() to "
    "load_state_dict: each epoch continues with the next mini-batch"
)


class RankLostError(ConnectionError):
    """Another rank ended, froze or could not be reached, so its part can no longer be read."""


class LostError(Exception):
    """A rank is lost; `how` describes how that was noticed."""

    def __init__(self, rank: int, how: str) -> None:
        super().__init__(f"rank {rank}: {how}")
        self.rank, self.how = rank, how


class Heartbeat:
    """Sends heartbeats to all other ranks, and receives theirs, in the thread that calls `beat`."""

    # `frozen_seconds` is the limit for a rank that has sent heartbeats and whose machine acknowledges data: one call
    # may keep its other Python threads from running. None means 30 s, or `silent_seconds` if that is less.
    def __init__(self, rank: int, silent_seconds: float, frozen_seconds: float | None = None) -> None:
        self.rank, self.silent_seconds = rank, silent_seconds
        self.frozen_seconds = min(FROZEN_SECONDS, silent_seconds) if frozen_seconds is None else frozen_seconds
        self.left: set[int] = set()
        """The other ranks that have announced that they leave."""
        self._arrived: SimpleQueue[tuple[int, socket.socket]] = SimpleQueue()
        self._leaving = False
        self._to: dict[int, socket.socket] = {}
        self._heard: dict[int, float] = {}
        self._spoke: set[int] = set()
        self._doubted: set[int] = set()
        """The ranks that were warned of."""
        self._listened, self._looked = 0.0, time.monotonic()
        """How long this rank could have received heartbeats, and the time of the last update. A pause of this process
        (SIGSTOP, a suspended machine) counts as half a second at most, so no other rank seems silent by it."""
        self._gone: dict[int, float] = {}
        self._selector = selectors.DefaultSelector()
        self._next_beat = 0.0

    def watch(self, rank: int, connection: socket.socket) -> None:
        self._to[rank], self._next_beat = connection, 0.0
        self._watch(rank, connection)

    def accept(self, rank: int, connection: socket.socket) -> None:
        self._arrived.put((rank, connection))  # any thread may call this

    def beat(self, leaving: bool) -> bool:
        """Send and receive heartbeats for a short while; return whether all known ranks are leaving."""
        while not self._arrived.empty():
            self._watch(*self._arrived.get())
        for key, _ in self._selector.select(PAUSE_SECONDS):
            self._hear(key.data, key.fileobj)  # type: ignore[arg-type]
        now, pause = time.monotonic(), current_limits().beat_seconds
        self._listened, self._looked = self._listened + min(now - self._looked, pause), now
        # A leaving rank sends no more requests, and exits once all others leave. This is announced at once.
        if leaving != self._leaving or now >= self._next_beat:
            self._leaving, self._next_beat = leaving, now + pause
            self._send(bytes([leaving]))
        for rank, heard in self._heard.items():
            # Neither rank needs the other any more.
            if leaving and rank in self.left:
                continue
            # Not at once, because messages sent earlier may arrive later.
            if now - self._gone.get(rank, now) > GRACE_SECONDS:
                raise LostError(rank, "its connection ended")
            silent = self._listened - heard
            if silent > min(DOUBT_SECONDS, self.frozen_seconds, self.silent_seconds):
                self._check_silent(rank, silent)
        return leaving and len(self.left) == len(self._to)

    def _check_silent(self, rank: int, silent: float) -> None:
        """Raise if a silent rank is lost, or warn about it once."""
        if rank not in self._spoke & self._to.keys() or not is_confirmed(self._to[rank]):
            if silent > self.silent_seconds:
                raise LostError(rank, f"it sent no heartbeat for {self.silent_seconds:g} s")
        elif silent > self.frozen_seconds:
            how = (
                f"its machine answers, but it sent no heartbeat for {self.frozen_seconds:g} s; if one call of its "
                "program may hold Python's GIL for longer, pass a larger Peers(frozen_timeout=) on all ranks"
            )
            raise LostError(rank, how)
        elif silent > DOUBT_SECONDS and rank not in self._doubted:
            self._doubted.add(rank)
            warnings.warn(
                f"rank {rank} has sent no heartbeat for {DOUBT_SECONDS:g} s, although its machine answers: one "
                "call holds Python's GIL, or it is frozen; it is considered lost after "
                f"{self.frozen_seconds:g} s, see Peers(frozen_timeout=)",
                RuntimeWarning,
                stacklevel=2,
            )

    def announce_loss(self, rank: int) -> None:
        # So that this rank, which exits now, is not taken for the cause.
        self._send(LOST.pack(2, rank))

    def _send(self, sign: bytes) -> None:
        for connection in self._to.values():
            with suppress(OSError):  # the queue of a silent rank is full, or `_hear` notices the end
                connection.send(sign)

    def close(self) -> None:
        for key in list((self._selector.get_map() or {}).values()):  # the map is None after the first call
            key.fileobj.close()  # type: ignore[union-attr]
        while not self._arrived.empty():
            self._arrived.get()[1].close()
        self._selector.close()

    def _watch(self, rank: int, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._heard[rank] = self._listened
        self._selector.register(connection, selectors.EVENT_READ, rank)

    def _hear(self, rank: int, connection: socket.socket) -> None:
        """Receive the heartbeats that have arrived on a connection."""
        try:
            signs = connection.recv(4096)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            signs = b""
        if signs:
            # Other heartbeats are 0 or 1.
            begin = signs.find(2)
            if begin >= 0 and len(signs) >= begin + LOST.size:
                lost = LOST.unpack_from(signs, begin)[1]
                raise LostError(lost, "its program failed" if lost == rank else f"rank {rank} lost it")
            self._heard[rank] = self._listened
            self._spoke.add(rank)
            self._doubted.discard(rank)
            (self.left.add if signs[-1] else self.left.discard)(rank)
            return
        self._gone.setdefault(rank, time.monotonic())
        self._selector.unregister(connection)
        connection.close()


def is_confirmed(connection: socket.socket) -> bool:
    """Return whether the other machine has acknowledged all data; always False if that can't be queried (not Linux)."""
    with suppress(ImportError, OSError):
        import fcntl  # noqa: PLC0415  # not on Windows
        import termios  # noqa: PLC0415

        return not any(fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))
    return False
