"""GraphLearn-for-PyTorch's channel that pulls from sampling servers."""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NoReturn

from graphfeed.channels import ChannelBase
from graphfeed.datapipes import find_rank
from graphfeed.distributed.servers.remote_executor import RemoteExecutor
from graphfeed.distributed.servers.tickets import Cut
from graphfeed.loader.executors import RemoteTraceback
from graphfeed.ops.arguments import check_count, check_seconds, check_seed, checked
from graphfeed.ops.process import Closeable, wait_until_done


class RemoteReceivingChannel(ChannelBase, Closeable):
    """Receives the mini-batches of an epoch from sampling servers, for programs that don't have the pipeline.

    It has the name and both signatures of GraphLearn-for-PyTorch: `num_expected` before `prefetch_size=4` for one
    server, or only `prefetch_size=2`, for one server or a list of them.

    `recv()` returns the mini-batches of an epoch in order, equal to those of a `DataLoader` with the same seed, and
    then raises StopIteration. Each server can produce any of them, while GraphLearn's have their own seeds. If one is
    lost, another takes over its requests. If none is left, an error names them all, and the next `recv()` requests the
    same mini-batch again. `reset()` begins the next epoch, and drops the rest of the last one.

    Args:
        server_rank: The server, or a list of servers: addresses, or positions in `servers`.
        producer_id: Index of the cut of the servers' pipeline to read; only pipelines with branches have more than one.
            For a list of servers, a list of the same length with equal values.
        counts: `num_expected` and `prefetch_size`, as in the signatures above; both can be passed by name.
        num_expected: Expected number of mini-batches per epoch, to be checked against the servers' number.
        prefetch_size: Number of mini-batches requested ahead from each server.
        servers: The addresses that `server_rank` indexes, as "host:port". Without TLS, those of other machines must be
            written as "grpc://host:port"; others on the network can then read the token and the mini-batches.
        token: The servers' token. The default is the environment variable GRAPHFEED_TOKEN.
        tls_root_certs: Certificates with which to verify the servers, as PEM; None connects without TLS.
        timeout: Seconds without a response after which a server is considered lost.

    Raises:
        ImportError: pyarrow is not installed.
        ValueError: There is no server or no token, an address is wrong or would receive the token unencrypted, the
            lists differ in length, or a count is below 1.

    Example:
        >>> import graphfeed as gf
        >>> pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2).transform()
        >>> with gf.SamplingServer(pipe, token="secret") as server:
        ...     with RemoteReceivingChannel([server.address], [0], 2, token="secret") as channel:
        ...         [minibatch.seeds.tolist() for minibatch in channel]
        [[0, 1], [2, 3]]
    """

    @checked
    def __init__(
        self,
        server_rank: int | str | Sequence[int | str],
        producer_id: int | Sequence[int],
        *counts: int,
        num_expected: int | None = None,
        prefetch_size: int | None = None,
        servers: Sequence[str] = (),
        token: str | None = None,
        tls_root_certs: bytes | None = None,
        seed: int = 0,
        timeout: float = 600.0,
    ) -> None:
        is_list = isinstance(server_rank, Sequence) and not isinstance(server_rank, str)
        num_expected, prefetch_size = find_counts(counts, num_expected, prefetch_size, is_list=is_list)
        if prefetch_size is None:
            prefetch_size = 2 if num_expected is None else 4  # the defaults of the two signatures
        for name, count in (("num_expected", num_expected), ("prefetch_size", prefetch_size)):
            if count is not None:
                check_count(name, count, 1)
        check_seconds("timeout", timeout)
        ranks: Any = server_rank if is_list else [server_rank]
        addresses = [find_address(rank, servers) for rank in ranks]
        if not addresses:
            raise ValueError("server_rank must name a server, but is empty")
        self._producer = find_producer(producer_id, len(addresses) if is_list else None)
        self._num_expected = num_expected
        self._seed = check_seed("seed", seed)
        self._window = prefetch_size * len(addresses)
        self._executor = RemoteExecutor(addresses, token, tls_root_certs, self._window, timeout)
        self._receiving = threading.Lock()
        self._cut: tuple[Cut, int] | None = None
        self._asked: deque[Future[Any]] = deque()
        self._num_received = 0
        self._closed = False
        self.epoch = 0
        """The current epoch."""

    def send(self, msg: Any, *_: Any, **__: Any) -> NoReturn:  # noqa: ARG002
        """Raise a RuntimeError: servers send, and this object only receives."""
        raise RuntimeError("a RemoteReceivingChannel only receives; a SamplingServer sends")

    def recv(self, *_: Any, **__: Any) -> Any:
        """Return the next mini-batch, and prefetch those after it.

        Raises:
            StopIteration: The epoch is over, until `reset()`.
            ConnectionError: All servers are lost; the next call requests the same mini-batch again.
            PermissionError: A server does not accept the token.
            RuntimeError: A stage failed, and the next call continues after its mini-batch; or the channel is closed.
            ValueError: Servers have different pipelines, `producer_id` doesn't exist, or `num_expected` is wrong.
        """
        with self._receiving:
            cut, length = self._describe()
            while len(self._asked) < min(self._window, length - self._num_received):
                task = (self._seed, self.epoch, self._num_received + len(self._asked))
                self._asked.append(self._executor.fetch(cut, task))
            if not self._asked:
                raise StopIteration(f"epoch {self.epoch} is over")
            wait_until_done(self._asked[0])
            error = self._asked[0].exception()
            if error is None or isinstance(error.__cause__, RemoteTraceback):
                self._num_received += 1
                return self._asked.popleft().result()
            self._drop()
            raise error

    def reset(self) -> None:
        """Begin the next epoch, unless nothing of this one was received yet. Requests in flight are dropped."""
        with self._receiving:
            self._drop()
            if self._num_received:
                self.epoch += 1
            self._num_received = 0

    def __iter__(self) -> Iterator[Any]:
        """Yield the remaining mini-batches of the epoch; then begin the next one."""
        with suppress(StopIteration):
            while True:
                yield self.recv()
        self.reset()

    def __len__(self) -> int:
        with self._receiving:  # so that only one request is sent
            return self._describe()[1]

    def close(self) -> None:
        """End the requests and close the connections. Has no effect if called again."""
        self._closed = True
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _describe(self) -> tuple[Cut, int]:
        if self._closed:
            raise RuntimeError("the channel is closed; create a new one")
        if self._cut is None:
            cuts = self._executor.describe(find_rank() or (0, 1))
            if self._producer >= len(cuts):
                raise ValueError(
                    f"producer_id is {self._producer}, but the servers' pipeline has {len(cuts)} "
                    f"cut{'s' if len(cuts) > 1 else ''}, counted from 0"
                )
            cut, length = cuts[self._producer]
            if self._num_expected not in (None, length):
                raise ValueError(
                    f"num_expected is {self._num_expected}, but an epoch has {length} mini-batches; leave it out, or "
                    "pass prefetch_size=... if that was meant"
                )
            self._cut = cut, length
        return self._cut

    def _drop(self) -> None:
        for future in self._asked:
            future.cancel()
        self._asked.clear()


def find_counts(
    counts: tuple[int, ...], num_expected: int | None, prefetch_size: int | None, *, is_list: bool
) -> tuple[int | None, int | None]:
    """Return num_expected and prefetch_size, passed by position in either signature, or by name."""
    names = ["prefetch_size"] if is_list else ["num_expected", "prefetch_size"]
    given = {"num_expected": num_expected, "prefetch_size": prefetch_size}
    if len(counts) > len(names):
        raise TypeError(f"at most {' and '.join(names)} may come after producer_id, but there are {len(counts)} values")
    for name, count in zip(names, counts, strict=False):
        if given[name] is not None:
            raise TypeError(f"{name} is given twice: {count} by position, and {given[name]} by name")
        given[name] = count
    return given["num_expected"], given["prefetch_size"]


def find_address(server_rank: int | str, servers: Sequence[str]) -> str:
    """Return the address of a server, given by itself or as a position."""
    if isinstance(server_rank, str):
        return server_rank
    check_count("server_rank", server_rank, 0)
    if server_rank >= len(servers):
        raise ValueError(
            f"server_rank is {server_rank}, but servers has {len(servers)} addresses; pass an address, or servers=[...]"
        )
    return servers[server_rank]


def find_producer(producer_id: Any, num_servers: int | None) -> int:
    """Return the index of the cut to read, which must be the same for all servers; one number means one server."""
    given = list(producer_id) if isinstance(producer_id, Sequence) else [producer_id]
    if isinstance(producer_id, Sequence) != (num_servers is not None) or len(given) != (num_servers or 1):
        raise ValueError(
            f"server_rank and producer_id must be two numbers, or two lists of the same length, but producer_id is "
            f"{producer_id} for {num_servers or 1} servers"
        )
    for number in given:
        check_count("producer_id", number, 0)
    if len(set(given)) > 1:
        raise ValueError(
            f"each server can produce all mini-batches of a cut, so producer_id must be the same for all servers, but "
            f"is {producer_id}; create a channel for each cut"
        )
    return int(given[0])
