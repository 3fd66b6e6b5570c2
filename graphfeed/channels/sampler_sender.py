"""DGL's former sender of samples to trainers."""

import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from graphfeed.channels.codec import SampleMessage
from graphfeed.channels.frames import END, LEAVE, SAMPLE, choose_token, greet, parse_address, send_frame
from graphfeed.loader.transport.thread_channel import Closed

RETRY_SECONDS = 0.2


class SamplerSender:
    """Sends samples to numbered receivers, under the name that DGL's contrib package used.

    A sample is a dict of tensors of any dtypes. If the receiver is slow, `send` waits once the system's buffers are
    full, so samples never pile up. For one thread at a time.

    Args:
        namebook: The receivers' addresses by number, such as {0: "127.0.0.1:50051"}.
        net_type: "socket".
        token: The token that receivers ask for; None means that of the environment, GRAPHFEED_TOKEN. Without one, only
            receivers on this machine can be called.
        timeout: How many seconds connecting may take, and each wait of a `send`.

    Raises:
        ValueError: No or malformed addresses, another net_type, or no token for another machine.
        TimeoutError: A receiver did not answer in time.
        PermissionError: A receiver has another token.
    """

    def __init__(
        self,
        namebook: Mapping[int, str],
        net_type: str = "socket",
        *,
        token: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        if not namebook:
            raise ValueError("namebook must have a receiver's address under each number, but is empty")
        if net_type != "socket":
            raise ValueError(f"net_type must be 'socket', but is {net_type!r}")
        self.timeout = timeout
        self.sockets: dict[int, socket.socket] = {}
        try:
            for number, address in namebook.items():
                self.sockets[number] = connect(address, token, timeout)
        except BaseException:
            self.close()
            raise

    def send(self, nodeflow: SampleMessage, recv_id: int) -> None:
        """Send a sample to one receiver.

        Raises:
            KeyError: There is no such receiver.
            Closed: It is gone.
            TimeoutError: It takes no more samples.
        """
        self._frame(SAMPLE, recv_id, nodeflow)

    def batch_send(self, nodeflows: Sequence[SampleMessage], recv_ids: Sequence[int]) -> None:
        """Send several samples, each to its receiver."""
        for nodeflow, recv_id in zip(nodeflows, recv_ids, strict=True):
            self.send(nodeflow, recv_id)

    def signal(self, recv_id: int) -> None:
        """Tell one receiver that this sender's epoch is over."""
        self._frame(END, recv_id)

    def close(self) -> None:
        """Leave all receivers. Does nothing the second time."""
        for sock in self.sockets.values():
            with suppress(Closed, OSError):
                send_frame(sock, LEAVE)
            sock.close()
        self.sockets.clear()

    def __del__(self) -> None:
        if hasattr(self, "sockets"):
            self.close()

    def _frame(self, kind: int, recv_id: int, sample: SampleMessage | None = None) -> None:
        if recv_id not in self.sockets:
            raise KeyError(f"recv_id must be one of {sorted(self.sockets)}, but is {recv_id}")
        try:
            send_frame(self.sockets[recv_id], kind, sample)
        except TimeoutError as error:
            # A part of the frame may have been sent, so no other frame can follow.
            self.sockets.pop(recv_id).close()
            raise TimeoutError(f"receiver {recv_id} took nothing for {self.timeout:g} s; it was left") from error


def connect(address: str, token: str | None, timeout: float) -> socket.socket:
    """Connect to a receiver, which may start later than the sender."""
    host, port = parse_address(address)
    secret = choose_token(token, host)
    end = time.monotonic() + timeout
    while True:
        try:
            sock = socket.create_connection((host, port), max(end - time.monotonic(), 0.01))
            break
        except OSError as error:
            if time.monotonic() + RETRY_SECONDS > end:
                raise TimeoutError(f"receiver {address} did not answer for {timeout:g} s: is it running?") from error
            time.sleep(RETRY_SECONDS)
    sock.settimeout(timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        known = greet(sock, secret, listens=False)
    except Closed:
        known = False
    except BaseException:
        sock.close()
        raise
    if not known:
        sock.close()
        raise PermissionError(f"receiver {address} has another token, or is not one of graphfeed's")
    return sock
