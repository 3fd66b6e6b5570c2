"""DGL's former sender of samples to trainers."""

import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Self

from graphfeed.channels.addresses import PLAINTEXT, check_way, choose_token, parse_address
from graphfeed.channels.certificates import make_client_context
from graphfeed.channels.codec import SampleMessage
from graphfeed.channels.frames import END, LEAVE, SAMPLE, greet, pack_frame, send_parts
from graphfeed.loader.transport.thread_channel import Closed
from graphfeed.ops.checks import check_seconds

RETRY_SECONDS = 0.2
LEAST_SECONDS = 0.01
"""How long each step of connecting may take, if the time is over."""
LEAVE_SECONDS = 5.0
"""How long a sender that nobody has closed may take to say that it leaves."""


class SamplerSender:
    """Sends samples to numbered receivers, under the name that DGL's contrib package used.

    A sample is a dict of tensors of any dtypes. If the receiver is slow, `send` waits once the system's buffers are
    full, so samples never pile up. For one thread at a time.

    Args:
        namebook: The receivers' addresses by number, such as {0: "127.0.0.1:50051"}. Without TLS, those of other
            machines must be written as "tcp://10.0.0.2:50051"; then anybody on the way can read the samples, and put
            others in their place.
        net_type: "socket".
        token: The token that receivers ask for; None means that of the environment, GRAPHFEED_TOKEN. Without one, only
            receivers on this machine can be called.
        tls_root_certs: The certificates that the receivers' are checked against, as PEM; None connects without TLS.
        timeout: How many seconds connecting may take, and each wait of a `send`.

    Raises:
        TypeError: An argument is of another type.
        ValueError: No or malformed addresses, another net_type, or no token or no TLS for another machine.
        TimeoutError: A receiver did not answer in time.
        PermissionError: A receiver has another token, or no certificate that is known.

    Example:
        >>> import threading, torch
        >>> from graphfeed.channels import SamplerReceiver
        >>> def send(address):
        ...     with SamplerSender({0: address}, token="secret") as sender:
        ...         sender.send({"x": torch.ones(1)}, 0)
        ...         sender.signal(0)
        >>> with SamplerReceiver(None, "127.0.0.1:0", token="secret") as receiver:
        ...     threading.Thread(target=send, args=(receiver.address,)).start()
        ...     list(receiver)
        [{'x': tensor([1.])}]
    """

    def __init__(
        self,
        namebook: Mapping[int, str],
        net_type: str = "socket",
        *,
        token: str | None = None,
        tls_root_certs: bytes | None = None,
        timeout: float = 600.0,
    ) -> None:
        if not namebook:
            raise ValueError("namebook must have a receiver's address under each number, but is empty")
        if net_type != "socket":
            raise ValueError(f"net_type must be 'socket', but is {net_type!r}")
        check_seconds("timeout", timeout)
        self.timeout = timeout
        self.addresses = dict(namebook)
        self.sockets: dict[int, socket.socket] = {}
        context = None if tls_root_certs is None else make_client_context(tls_root_certs)
        for address in self.addresses.values():
            check_receiver(address, token, context)
        try:
            for number, address in self.addresses.items():
                self.sockets[number] = connect(address, token, context, timeout)
        except BaseException:
            self.close()
            raise

    def send(self, nodeflow: SampleMessage, recv_id: int) -> None:
        """Send a sample to one receiver.

        Raises:
            KeyError: There is no such receiver, or it was lost before.
            TypeError: The sample is not a dict of dense tensors by name; nothing was sent.
            ValueError: It is larger than 16 GiB; nothing was sent.
            Closed: The receiver is gone.
            TimeoutError: It takes no more samples, and was left.
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
        self._leave(self.timeout)

    def __enter__(self) -> Self:
        """Return the sender, which the end of the block closes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the sender."""
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "sockets"):
            self._leave(min(self.timeout, LEAVE_SECONDS))

    def _leave(self, seconds: float) -> None:
        while self.sockets:
            _, sock = self.sockets.popitem()
            try:
                with suppress(Closed, OSError):
                    sock.settimeout(seconds)
                    send_parts(sock, pack_frame(LEAVE))
            finally:
                sock.close()

    def _frame(self, kind: int, recv_id: int, sample: SampleMessage | None = None) -> None:
        if recv_id not in self.sockets:
            raise KeyError(f"recv_id must be one of {sorted(self.sockets)}, but is {recv_id}")
        parts = pack_frame(kind, sample)
        is_sent = False
        try:
            send_parts(self.sockets[recv_id], parts)
            is_sent = True
        except TimeoutError as error:
            raise TimeoutError(f"receiver {recv_id} took nothing for {self.timeout:g} s; it was left") from error
        except (Closed, OSError) as error:
            address = self.addresses[recv_id]
            raise Closed(f"receiver {recv_id} at {address} has closed the connection, or is dead") from error
        finally:
            if not is_sent:
                # A part of the frame may have been sent, as by an interrupt, so no other frame can follow.
                self.sockets.pop(recv_id).close()


def check_receiver(address: str, token: str | None, context: ssl.SSLContext | None) -> tuple[str, int, bytes]:
    """Return the host and the port of a receiver, and the token for it, if it may be called in this way.

    Raises:
        TypeError: The address is no text.
        ValueError: It is none, or there is no token or no TLS for another machine.
    """
    option = "tls_root_certs=..."
    host, port = parse_address(check_way(address, PLAINTEXT, option, has_tls=context is not None))
    if port == 0:
        raise ValueError(
            f"nobody can be called at port 0, as in {address!r}; give the port that the receiver listens on"
        )
    return host, port, choose_token(token, host)


def connect(address: str, token: str | None, context: ssl.SSLContext | None, timeout: float) -> socket.socket:
    """Connect to a receiver, which may start later than the sender."""
    host, port, secret = check_receiver(address, token, context)
    end = time.monotonic() + timeout
    while True:
        try:
            sock = socket.create_connection((host, port), max(end - time.monotonic(), LEAST_SECONDS))
            break
        except (OSError, UnicodeError) as error:
            if time.monotonic() + RETRY_SECONDS > end:
                raise TimeoutError(
                    f"receiver {address} did not answer for {timeout:g} s: is it running? The last error was: {error}"
                ) from error
            time.sleep(RETRY_SECONDS)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(max(end - time.monotonic(), LEAST_SECONDS))
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname=host)
            sock.settimeout(max(end - time.monotonic(), LEAST_SECONDS))
        known = greet(sock, secret, listens=False)
        sock.settimeout(timeout)
    except TimeoutError as error:
        sock.close()
        raise TimeoutError(
            f"receiver {address} let nobody in for {timeout:g} s: it does so while it is iterated"
        ) from error
    except (Closed, ConnectionError):
        known = False
    except ssl.SSLError as error:
        sock.close()
        raise PermissionError(f"receiver {address} has no TLS, or no certificate that is known: {error}") from error
    except BaseException:
        sock.close()
        raise
    if not known:
        sock.close()
        way = "without TLS" if context is None else "over TLS"
        raise PermissionError(
            f"receiver {address} has another token, or is not one of graphfeed's (it was called {way})"
        )
    return sock
