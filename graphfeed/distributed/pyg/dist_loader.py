"""What the loaders of `torch_geometric.distributed` share."""

import copy
import os
import queue
from collections.abc import Iterator
from typing import Any

import torch

from graphfeed.datapipes import Datapipe
from graphfeed.distributed.pyg.dist_context import DistContext
from graphfeed.distributed.pyg.dist_data import find_peers
from graphfeed.distributed.pyg.dist_neighbor_sampler import DistNeighborSampler
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.ops.arguments import checked
from graphfeed.pyg.loaders import PyGLoader, TorchOptions


class DistLoader(PyGLoader):
    """A base for loaders over a graph in parts, with the names of `torch_geometric.distributed.DistLoader`.

    A loader is a `graphfeed.DataLoader`: it shows its `pipeline` and `explain()`, and `state_dict()` resumes an epoch.
    Making one waits for nobody, and ranks may make different numbers of mini-batches. A rank that is lost ends the
    others by a `RankLostError` that names it. At the end of its program, a rank answers the others until they end too.

    As a context, a loader gives the mini-batches of an epoch, as PyG's does, and is not closed. That epoch does not
    count: the next `iter()` starts it again.

    Args:
        current_ctx: Which rank this is.
        master_addr: Where rank 0 listens. None: the ranks of the process group, if there is one, or the environment's
            MASTER_ADDR.
        master_port: At which port. None with an address: the one behind the environment's MASTER_PORT. Loaders with
            the same address and port share their connections.
        channel: Has no effect: mini-batches come in order, without a queue between. `channel` of the loader is this
            queue, or an empty one.
        num_rpc_threads: Has no effect: one thread answers the other ranks.
        rpc_timeout: After how many seconds without a sign of life another rank counts as lost. The first loader at an
            address sets it.
        dist_sampler: The sampler.
        datapipe: The pipeline; with `options`, the stages before features are fetched.
        options: The arguments of torch's `DataLoader`; needs `dist_sampler`.
        input_type: The type of the seeds.
        kwargs: The arguments of `graphfeed.DataLoader`, in place of `options`.

    Raises:
        ValueError: No address, port or process group, or a number of threads or seconds that is not above 0.
    """

    @checked
    def __init__(
        self,
        current_ctx: DistContext,
        master_addr: str | None = None,
        master_port: int | str | None = None,
        channel: Any = None,
        num_rpc_threads: int = 16,
        rpc_timeout: float = 180,
        dist_sampler: DistNeighborSampler | None = None,
        *,
        datapipe: Datapipe,
        options: TorchOptions | None = None,
        input_type: Any = None,
        **kwargs: Any,
    ) -> None:
        for name, value in (("num_rpc_threads", num_rpc_threads), ("rpc_timeout", rpc_timeout)):
            if not value > 0:
                raise ValueError(f"{name} must be more than 0, but is {value}")
        self.current_ctx, self.dist_sampler = current_ctx, dist_sampler
        self.channel: Any = queue.Queue() if channel is None else channel
        self.peers: Peers = find_peers(current_ctx, master_addr, master_port, rpc_timeout)
        self._entered: Iterator[Any] | None = None
        if dist_sampler is not None:
            data = dist_sampler.connect(self.peers)
            self.peers = data.peers
            if options is not None:
                datapipe = options.end(self._fill(datapipe, data.data_features(input_type)))
                if dist_sampler.device is not None and torch.device(dist_sampler.device).type != "cpu":
                    datapipe = datapipe.copy_to(dist_sampler.device)
                kwargs = options.loader()
                kwargs["num_workers"] *= dist_sampler.concurrency
        super().__init__(datapipe, **kwargs)

    def channel_get(self, out: Any) -> Any:
        """Return what is given, for there is no queue."""
        return out

    def reset_channel(self, channel: Any = None) -> None:
        """Do nothing, for there is no queue."""

    def worker_init_fn(self, worker_id: int) -> None:
        """Do nothing: workers need not find each other."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(pid={os.getpid()})"  # as PyG's

    def __enter__(self) -> Iterator[Any]:  # type: ignore[override]  # PyG's returns an iterator
        self._before = copy.copy(self._next), self._latest
        self._entered = iter(self)
        return self._entered

    def __exit__(self, *error: object) -> None:
        """End the epoch, and start it again with the next `iter()`."""
        running: Any = self._entered
        running.close()
        self._next, self._latest = self._before
