"""The sender of samples that DGL once had, as an Arrow Flight client."""

import os
import secrets
import socket
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from graphfeed.channels import Closed, SampleMessage
from graphfeed.distributed.servers.sampler_receiver import END, HELLO, LEAVE, SAMPLE
from graphfeed.distributed.wire import (
    call_options,
    check_encryption,
    choose_token,
    import_arrow,
    import_flight,
    make_client,
    make_client_context,
    parse_address,
    text_of,
    to_batch,
)
from graphfeed.loader.executors import ThreadExecutor
from graphfeed.ops.arguments import check_seconds, checked
from graphfeed.ops.process import Closeable, result_of
from graphfeed.storage.memory import describe_tensors

RETRY_SECONDS = 0.2
LEAST_SECONDS = 0.01
"""Minimum time limit of each step of connecting, once the total limit has passed."""
LEAVE_SECONDS = 5.0
"""Time limit for announcing that a sender leaves."""
LARGEST_BYTES = (1 << 31) - (1 << 25)
"""Maximum size of a sample: gRPC messages are limited to 2 GiB."""


class SamplerSender(Closeable):
    """Sends samples to numbered receivers, under the name that DGL's contrib package used.

    A sample is a dict of tensors of any dtypes. `send` returns once the receiver has the sample, and waits while two
    earlier ones were not taken from the receiver yet. Not thread-safe. Needs pyarrow: `pip install ".[serve]"`.

    Args:
        namebook: Addresses of the receivers by number, such as {0: "127.0.0.1:50051"}. Without TLS, those of other
            machines must be written as "grpc://10.0.0.2:50051"; others on the network can then read the token, and
            read and change the samples.
        net_type: Must be "socket".
        token: The token of the receivers. The default is the environment variable GRAPHFEED_TOKEN. Without one, only
            receivers on this machine are allowed.
        tls_root_certs: Certificates with which to verify the receivers, as PEM; None connects without TLS.
        timeout: Time limit in seconds for connecting, and for each `send`.

    Raises:
        ImportError: pyarrow is not installed.
        ValueError: `namebook` or `net_type` is invalid, or there is no token or no TLS for another machine.
        TimeoutError: A receiver did not respond in time.
        PermissionError: A receiver has another token, or no certificate that can be verified.

    Example:
        >>> import threading, torch
        >>> from graphfeed.distributed import SamplerReceiver
        >>> def send(address):
        ...     with SamplerSender({0: address}, token="secret") as sender:
        ...         sender.send({"x": torch.ones(1)}, 0)
        ...         sender.signal(0)
        >>> with SamplerReceiver(None, "127.0.0.1:0", token="secret") as receiver:
        ...     threading.Thread(target=send, args=(receiver.address,)).start()
        ...     list(receiver)
        [{'x': tensor([1.])}]
    """

    @checked
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
            raise ValueError("namebook must map numbers to addresses of receivers, but is empty")
        if net_type != "socket":
            raise ValueError(f"net_type must be 'socket', but is {net_type!r}")
        check_seconds("timeout", timeout)
        self.timeout = timeout
        unconnected = {
            number: Connection(address, token, tls_root_certs, timeout) for number, address in namebook.items()
        }
        self.connections: dict[int, Connection] = {}
        # Signals don't interrupt calls of Arrow Flight, but they interrupt waiting for another thread.
        self._executor = ThreadExecutor(1, "graphfeed-sender")
        self._close = weakref.finalize(self, leave_all, self.connections, self._executor)
        try:
            for number, connection in unconnected.items():
                result_of(self._executor.submit(connection.connect))
                self.connections[number] = connection
        except BaseException:
            self.close()
            raise

    @checked
    def send(self, nodeflow: SampleMessage, recv_id: int) -> None:
        """Send a sample to one receiver.

        Raises:
            KeyError: There is no such receiver, or it was lost before.
            ValueError: The sample is larger than 2 GiB; nothing was sent.
            Closed: The receiver has ended.
            TimeoutError: The receiver was full for too long. The connection was closed.
        """
        # Checked before tensors are made contiguous: an expanded one may be far larger than its storage.
        size = sum(spec.nbytes for spec in describe_tensors(nodeflow))
        if size > LARGEST_BYTES:
            raise ValueError(f"a sample may have at most {LARGEST_BYTES} bytes, but has {size}; send less at a time")
        sample = {name: tensor.detach() for name, tensor in nodeflow.items()}
        self._put(to_batch(SAMPLE, sample), recv_id)

    @checked
    def batch_send(self, nodeflows: Sequence[SampleMessage], recv_ids: Sequence[int]) -> None:
        """Send several samples, each to its receiver."""
        for nodeflow, recv_id in zip(nodeflows, recv_ids, strict=True):
            self.send(nodeflow, recv_id)

    @checked
    def signal(self, recv_id: int) -> None:
        """Signal the end of this sender's epoch to one receiver."""
        self._put(to_batch(END, None), recv_id)

    def close(self) -> None:
        """Leave all receivers. Has no effect if called again."""
        self._close()

    def _put(self, batch: Any, recv_id: int) -> None:
        if recv_id not in self.connections:
            raise KeyError(f"recv_id must be one of {sorted(self.connections)}, but is {recv_id}")
        connection, is_sent = self.connections[recv_id], False
        try:
            result_of(self._executor.submit(connection.put, batch, self.timeout))
            is_sent = True
        except TimeoutError as error:
            raise TimeoutError(f"receiver {recv_id} took no sample for {self.timeout:g} s; disconnected it") from error
        except ConnectionError as error:
            raise Closed(
                f"receiver {recv_id} at {connection.address} has closed the connection, or is dead: {error}"
            ) from error
        finally:
            if not is_sent:
                # After an interrupt, the sample may still be in flight, so no other one can follow.
                self.connections.pop(recv_id).cut_off()


class Connection:
    """A sender's connection to one receiver: a call that stays open while both live, and a call for each sample."""

    def __init__(self, address: str, token: str | None, tls_root_certs: bytes | None, timeout: float) -> None:
        self.address = check_encryption(address, "tls_root_certs=...", has_tls=tls_root_certs is not None)
        self.host, self.port = parse_address(self.address)
        if self.port == 0:
            raise ValueError(
                f"port 0 can't be connected to, as in {address!r}; give the port that the receiver listens on"
            )
        self.token = choose_token(token, self.host)
        self.tls_root_certs, self.timeout = tls_root_certs, timeout
        self.context = None if tls_root_certs is None else make_client_context(tls_root_certs)
        self.process = os.getpid()
        self.key = secrets.token_hex(16)

    def connect(self) -> None:
        """Connect to the receiver, which may start later than the sender."""
        end = time.monotonic() + self.timeout
        self._find_listener(end)
        self.client = make_client(self.address, self.tls_root_certs, self.timeout)
        try:
            # Has no effect but to check whether this sender may send.
            self.put(to_batch(HELLO, None), max(end - time.monotonic(), LEAST_SECONDS))
            ticket = import_flight().Ticket(self.key)
            # Kept open without a time limit, so that each process notices the end of the other.
            self.session = self.client.do_get(ticket, call_options(self.token, None))
            self.session.read_chunk()
        except TimeoutError as error:
            raise TimeoutError(f"receiver {self.address} accepted no connection for {self.timeout:g} s") from error
        except (ConnectionError, import_flight().FlightError) as error:
            way = "without TLS" if self.context is None else "over TLS"
            raise PermissionError(
                f"receiver {self.address} has another token, or is not a graphfeed receiver (connecting {way}): "
                f"{text_of(error)}"
            ) from error

    def _find_listener(self, end: float) -> None:
        """Wait until the port is open; gRPC doesn't distinguish a closed port from a wrong certificate."""
        sock = None
        while sock is None:
            try:
                sock = socket.create_connection((self.host, self.port), max(end - time.monotonic(), LEAST_SECONDS))
            except (OSError, UnicodeError) as error:
                if time.monotonic() + RETRY_SECONDS > end:
                    raise TimeoutError(
                        f"receiver {self.address} did not respond for {self.timeout:g} s: is it running? The last "
                        f"error was: {error}"
                    ) from error
                time.sleep(RETRY_SECONDS)
        with sock:
            try:
                if self.context is not None:
                    self.context.wrap_socket(sock, server_hostname=self.host).close()
            except TimeoutError as error:
                raise TimeoutError(f"receiver {self.address} accepted no connection for {self.timeout:g} s") from error
            except OSError as error:
                raise PermissionError(
                    f"receiver {self.address} has no TLS, or no certificate that can be verified: {error}"
                ) from error

    def put(self, batch: Any, seconds: float) -> None:
        """Send a record batch, and wait until the receiver has it."""
        flight, arrow = import_flight(), import_arrow()
        end = time.monotonic() + seconds
        try:
            descriptor = flight.FlightDescriptor.for_command(self.key)
            writer, _ = self.client.do_put(descriptor, batch.schema, call_options(self.token, seconds))
            with writer:
                writer.write_batch(batch)
        except (flight.FlightError, arrow.ArrowException, OSError) as error:
            if time.monotonic() >= end or isinstance(error, flight.FlightTimedOutError):
                raise TimeoutError(text_of(error)) from error
            raise ConnectionError(text_of(error)) from error

    def cut_off(self) -> None:
        # The receiver treats this as a failure, unless this sender has announced that it leaves.
        self.session.cancel()
        self.client.close()


def leave_all(connections: dict[int, Connection], executor: ThreadExecutor) -> None:
    """Announce to all receivers that their sender leaves, and close the connections."""
    executor.shutdown(wait=False, cancel_futures=True)
    while connections:
        _, connection = connections.popitem()
        if connection.process == os.getpid():  # not in a forked process, where gRPC would hang
            try:
                connection.put(to_batch(LEAVE, None), min(connection.timeout, LEAVE_SECONDS))
            except OSError:  # the receiver has ended
                continue
            finally:
                connection.cut_off()
