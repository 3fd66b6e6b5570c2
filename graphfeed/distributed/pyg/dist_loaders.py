"""PyG's loaders for several machines."""

import copy
import os
import queue
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from graphfeed.datapipes import Datapipe, IterableSource, find_rank
from graphfeed.distributed.pyg.dist_data import DistContext, find_peers
from graphfeed.distributed.pyg.dist_neighbor_sampler import DistNeighborSampler
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.ops.arguments import checked
from graphfeed.pyg.data import (
    InputEdges,
    InputNodes,
    NegativeSampling,
    import_pyg,
    read_input_edges,
    read_input_nodes,
    split_edge_type,
)
from graphfeed.pyg.loaders import PyGLoader, TorchOptions

if TYPE_CHECKING:
    from graphfeed.distributed.pyg.local_feature_store import LocalFeatureStore
    from graphfeed.distributed.pyg.local_graph_store import LocalGraphStore


class DistLoader(PyGLoader):
    """Base class of loaders over a partitioned graph, with the names of `torch_geometric.distributed.DistLoader`.

    A loader is a `graphfeed.DataLoader`. The constructor doesn't wait for other ranks, and ranks may have different
    numbers of mini-batches. If a rank is lost, the others raise a `RankLostError` that names it. At the end of its
    program, a rank answers the others until they end too. As a context manager, a loader returns an iterator over an
    epoch, like PyG's, and is not closed at the end. That epoch does not count: the next `iter()` starts it again.

    Args:
        master_addr: Address of rank 0. None: the ranks of the process group if there is one, or else MASTER_ADDR in the
            environment.
        master_port: Port of rank 0. None with an address: MASTER_PORT in the environment plus one. Loaders with the
            same address and port share their connections.
        channel: Has no effect: mini-batches are returned in order, without a queue.
        num_rpc_threads: Has no effect: the number of threads that answer other ranks depends on the number of ranks.
        rpc_timeout: Seconds without a heartbeat after which another rank is considered lost. The first loader at an
            address determines it, and `frozen_timeout` too.
        frozen_timeout: The limit if the rank's machine still answers; 30 by default (see `Peers`).
        datapipe: The pipeline; with `options`, the stages before features are fetched.
        options: The arguments of torch's `DataLoader`; needs `dist_sampler`.
        kwargs: The arguments of `graphfeed.DataLoader`, instead of `options`.

    Raises:
        ValueError: There is no address, port or process group, or a number of threads or seconds is not positive.
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
        frozen_timeout: float | None = None,
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
        self.peers: Peers = find_peers(current_ctx, master_addr, master_port, rpc_timeout, frozen_timeout)
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
        if find_rank() is None:
            self.how_to_share = ""  # by default, each rank has its own seeds
        super().__init__(datapipe, **kwargs)

    def channel_get(self, out: Any) -> Any:
        """Return the argument; there is no queue."""
        return out

    def reset_channel(self, channel: Any = None) -> None:
        """Do nothing; there is no queue."""

    def worker_init_fn(self, worker_id: int) -> None:
        """Do nothing; workers need not connect to each other."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(pid={os.getpid()})"  # the same as PyG's

    def __enter__(self) -> Iterator[Any]:  # type: ignore[override]  # PyG's returns an iterator
        self._before = copy.copy(self._next), self._latest
        self._entered = iter(self)
        return self._entered

    def __exit__(self, *error: object) -> None:
        """End the epoch, which the next `iter()` starts again."""
        running: Any = self._entered
        running.close()
        self._next, self._latest = self._before


class DistNeighborLoader(DistLoader):
    """Produces mini-batches of neighborhoods in a partitioned graph, as `torch_geometric.distributed` was meant to.

    The arguments and their order are PyG's; docs/from-pyg-distributed.md has a table. The mini-batches of each rank's
    seeds are bit-identical to those of `graphfeed.pyg.NeighborLoader` with the same seeds and `seed` on the whole
    graph: PyG's `Data` or `HeteroData` with global ids in `n_id`, `e_id` and `input_id`, all tensors of the feature
    store, and `y` from its `labels`. See `DistLoader` for how ranks connect and end.

    Args:
        data: The feature store and the graph store of this rank's part.
        num_neighbors: Number of neighbors per hop, the seeds' own hop first. See `graphfeed.pyg.NeighborLoader`, also
            for replace, subgraph_type, disjoint, temporal_strategy and time_attr. PyG's class lacks "induced".
        master_addr: See `DistLoader`, also for master_port, current_ctx and num_rpc_threads.
        input_nodes: The seed nodes, global ids or a mask; with types, (type, ids or mask). None or only a type: the
            nodes that this rank owns.
        input_time: The timestamp of each seed node, instead of the one in the data.
        dist_sampler: A sampler to use, instead of the arguments for sampling.
        transform: A function that is applied to each mini-batch.
        concurrency: Number of mini-batches that each worker produces concurrently.
        filter_per_worker: Has no effect, nor has `async_sampling`: workers fetch features, and always run ahead.
        kwargs: The arguments of torch's `DataLoader`, `seed` and others of `graphfeed.DataLoader` (see
            `graphfeed.pyg.NodeLoader`), `rpc_timeout` and `frozen_timeout`. Workers are threads.

    Raises:
        ImportError: PyG is not installed.
        ValueError: Arguments don't match the data or each other.
    """

    @checked
    def __init__(
        self,
        data: tuple["LocalFeatureStore", "LocalGraphStore"],
        num_neighbors: Any,
        master_addr: str | None,
        master_port: int | str | None,
        current_ctx: DistContext,
        input_nodes: Any = None,
        input_time: torch.Tensor | Mapping[str, torch.Tensor] | None = None,
        dist_sampler: DistNeighborSampler | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        concurrency: int = 1,
        num_rpc_threads: int = 16,
        filter_per_worker: bool | None = False,
        async_sampling: bool = True,
        device: torch.device | str | None = None,
        **kwargs: Any,
    ) -> None:
        del filter_per_worker, async_sampling
        import_pyg("torch_geometric.data", type(self).__name__)
        if input_time is not None and time_attr is None and dist_sampler is None:
            raise ValueError("input_time needs time_attr, the name of the timestamps in the data; pass both")
        if dist_sampler is None:
            dist_sampler = DistNeighborSampler(
                current_ctx, data, num_neighbors, None, replace, subgraph_type, disjoint, temporal_strategy, time_attr,
                concurrency, device,
            )  # fmt: skip
        rpc_timeout, frozen_timeout = kwargs.pop("rpc_timeout", 180), kwargs.pop("frozen_timeout", None)
        dist_sampler.connect(find_peers(current_ctx, master_addr, master_port, rpc_timeout, frozen_timeout))
        options = TorchOptions.of(kwargs, type(self).__name__)
        pipe, input_type = node_source(dist_sampler, options, InputNodes(input_nodes, input_time))
        pipe = dist_sampler.append_to(pipe, input_time is not None)
        self.transform = transform
        super().__init__(
            current_ctx, master_addr, master_port, None, num_rpc_threads, rpc_timeout, dist_sampler,
            frozen_timeout=frozen_timeout, datapipe=pipe, options=options, input_type=input_type,
        )  # fmt: skip
        self.data: Any = data
        self.input_nodes, self.input_time = input_nodes, input_time


def node_source(sampler: DistNeighborSampler, options: TorchOptions, given: InputNodes) -> tuple[Datapipe, str | None]:
    """Return the first stages of a pipeline, for possibly empty seeds, and the type of the seeds."""
    data, nodes = sampler.connect(), given.nodes
    if isinstance(nodes, str):
        nodes = (nodes, None)
    if nodes is None and not sampler.is_hetero:
        nodes = data.own_nodes()
    elif isinstance(nodes, (tuple, list)) and len(nodes) == 2 and isinstance(nodes[0], str) and nodes[1] is None:
        nodes = (nodes[0], data.own_nodes(nodes[0]))
    ids = nodes[1] if isinstance(nodes, tuple) else nodes
    if isinstance(ids, torch.Tensor) and (ids.numel() == 0 or (ids.dtype == torch.bool and not bool(ids.any()))):
        return IterableSource([]), nodes[0] if isinstance(nodes, tuple) else None
    times = sampler.node_times if given.times is None else None
    seeds = read_input_nodes(data.tables, given._replace(nodes=nodes, node_times=times, time_attr=sampler.time_attr))
    return options.source(seeds.items), seeds.input_type


class DistLinkNeighborLoader(DistLoader):
    """Produces mini-batches around edges, as `torch_geometric.distributed.DistLinkNeighborLoader` was meant to.

    The mini-batches are those of `graphfeed.pyg.LinkNeighborLoader` with the same seeds and `seed` on the whole graph,
    including negatives. See `DistNeighborLoader` for their contents, and for arguments that are not listed here.

    Args:
        edge_label_index: The seed edges, global ids, shape (2, N); with types, (edge type, ids). None or only a type:
            the edges to nodes that this rank owns.
        edge_label: The label of each seed edge. With binary negatives, integer labels are incremented by one.
        edge_label_time: The timestamp of each seed edge.
        num_neighbors: Number of neighbors per hop, the seeds' own hop first.
        disjoint: Whether each endpoint of a seed edge has its own sampled tree. Always so for temporal sampling.
        neg_sampling: A `NegativeSampling` of graphfeed or PyG, a mode, or (mode, amount). `strict=True` is not
            supported, because it needs all edges in one place.
        neg_sampling_ratio: The amount of binary negatives.
        time_attr: The name of integer timestamps of nodes or edges; needs `edge_label_time`, and vice versa.
    """

    @checked
    def __init__(
        self,
        data: tuple["LocalFeatureStore", "LocalGraphStore"],
        num_neighbors: Any,
        master_addr: str | None,
        master_port: int | str | None,
        current_ctx: DistContext,
        edge_label_index: Any = None,
        edge_label: torch.Tensor | None = None,
        edge_label_time: torch.Tensor | None = None,
        dist_sampler: DistNeighborSampler | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        concurrency: int = 1,
        num_rpc_threads: int = 16,
        filter_per_worker: bool | None = False,
        async_sampling: bool = True,
        device: torch.device | str | None = None,
        **kwargs: Any,
    ) -> None:
        del filter_per_worker, async_sampling
        import_pyg("torch_geometric.data", type(self).__name__)
        if dist_sampler is None:
            if (edge_label_time is None) != (time_attr is None):
                raise ValueError("edge_label_time and time_attr go together; pass both or neither")
            dist_sampler = DistNeighborSampler(
                current_ctx, data, num_neighbors, None, replace, subgraph_type, disjoint, temporal_strategy, time_attr,
                concurrency, device,
            )  # fmt: skip
        rpc_timeout, frozen_timeout = kwargs.pop("rpc_timeout", 180), kwargs.pop("frozen_timeout", None)
        dist_sampler.connect(find_peers(current_ctx, master_addr, master_port, rpc_timeout, frozen_timeout))
        options = TorchOptions.of(kwargs, type(self).__name__)
        negatives = NegativeSampling.cast(("binary", neg_sampling_ratio) if neg_sampling_ratio else neg_sampling)
        given = InputEdges(edge_label_index, edge_label, edge_label_time)
        pipe, input_type = edge_source(dist_sampler, options, given, negatives)
        pipe = dist_sampler.append_links_to(pipe, negatives)
        self.transform = transform
        super().__init__(
            current_ctx, master_addr, master_port, None, num_rpc_threads, rpc_timeout, dist_sampler,
            frozen_timeout=frozen_timeout, datapipe=pipe, options=options, input_type=input_type,
        )  # fmt: skip
        self.data: Any = data
        self.edge_label_index, self.neg_sampling = edge_label_index, negatives


def edge_source(
    sampler: DistNeighborSampler, options: TorchOptions, given: InputEdges, negatives: NegativeSampling | None
) -> tuple[Datapipe, tuple[str, str, str] | None]:
    """Return the first stages of a pipeline, for possibly empty seeds, and the edge type of the seeds."""
    data, edge_type, edges = sampler.connect(), None, given.index
    if sampler.is_hetero:
        edge_type, edges = split_edge_type(data.tables, edges)
    if edges is None:
        edges = data.own_edges(edge_type)
    if isinstance(edges, torch.Tensor) and edges.numel() == 0:
        return IterableSource([]), edge_type
    index = edges if edge_type is None else (edge_type, edges)
    return options.source(read_input_edges(data.tables, given._replace(index=index), negatives).items), edge_type
