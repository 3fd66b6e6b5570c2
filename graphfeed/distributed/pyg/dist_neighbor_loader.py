"""The loader of `torch_geometric.distributed` for seeds that are nodes."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from graphfeed.datapipes import Datapipe, IterableSource
from graphfeed.distributed.pyg.dist_context import DistContext
from graphfeed.distributed.pyg.dist_data import find_peers
from graphfeed.distributed.pyg.dist_loader import DistLoader
from graphfeed.distributed.pyg.dist_neighbor_sampler import DistNeighborSampler
from graphfeed.distributed.pyg.local_feature_store import LocalFeatureStore
from graphfeed.distributed.pyg.local_graph_store import LocalGraphStore
from graphfeed.ops.arguments import checked
from graphfeed.pyg.data import InputNodes, import_pyg, read_input_nodes
from graphfeed.pyg.loaders import TorchOptions


class DistNeighborLoader(DistLoader):
    """Makes mini-batches of neighbourhoods in a graph in parts, as `torch_geometric.distributed` was meant to.

    The arguments and their order are PyG's; docs/from-pyg-distributed.md has a table. Each rank makes mini-batches of
    its own seeds. They are those of `graphfeed.pyg.NeighborLoader` with the same seeds and `seed` on the whole graph,
    bit by bit, for any number of parts: PyG's `Data` or `HeteroData` with global ids in `n_id`, `e_id` and `input_id`,
    all tensors of the feature store, and `y` from its `labels`. `DistLoader` says how ranks meet, and how they end.

    Args:
        data: The feature store and the graph store of this rank's part.
        num_neighbors: As for `graphfeed.pyg.NeighborLoader`: the seeds' own hop first. So are replace, subgraph_type,
            disjoint, temporal_strategy and time_attr. PyG's class does not have "induced".
        master_addr: See `DistLoader`; so are master_port, current_ctx and num_rpc_threads.
        input_nodes: The seeds, global ids or a mask; with types, (type, one of these). None, or a type alone: the nodes
            that this rank owns.
        input_time: The time of each seed, in place of its own.
        dist_sampler: A sampler to use, instead of the arguments about sampling.
        transform: A function of each mini-batch.
        concurrency: How many mini-batches each of the workers makes at a time.
        filter_per_worker: Has no effect: workers fetch features.
        async_sampling: Has no effect: workers always run ahead, and mini-batches come in order.
        device: Where mini-batches go.
        kwargs: The arguments of torch's `DataLoader`, `seed` and others of `graphfeed.DataLoader` (see
            `graphfeed.pyg.NodeLoader`), and `rpc_timeout`. Workers are threads.

    Raises:
        ImportError: PyG is not installed.
        TypeError: The data are not a pair of stores, or an argument that there is not.
        ValueError: Arguments that don't fit the data or each other.
    """

    @checked
    def __init__(
        self,
        data: tuple[LocalFeatureStore, LocalGraphStore],
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
            raise ValueError("input_time needs time_attr, the name of the times of what is sampled; give both")
        if dist_sampler is None:
            dist_sampler = DistNeighborSampler(
                current_ctx, data, num_neighbors, None, replace, subgraph_type, disjoint, temporal_strategy, time_attr,
                concurrency, device,
            )  # fmt: skip
        rpc_timeout = kwargs.pop("rpc_timeout", 180)
        dist_sampler.connect(find_peers(current_ctx, master_addr, master_port, rpc_timeout))
        options = TorchOptions.of(kwargs, type(self).__name__)
        pipe, input_type = node_source(dist_sampler, options, InputNodes(input_nodes, input_time))
        pipe = dist_sampler.append_to(pipe, input_time is not None)
        self.transform = transform
        super().__init__(
            current_ctx, master_addr, master_port, None, num_rpc_threads, rpc_timeout, dist_sampler,
            datapipe=pipe, options=options, input_type=input_type,
        )  # fmt: skip
        self.data: Any = data
        self.input_nodes, self.input_time = input_nodes, input_time


def node_source(sampler: DistNeighborSampler, options: TorchOptions, given: InputNodes) -> tuple[Datapipe, str | None]:
    """Return the first stages of a pipeline, for seeds that are perhaps none, and the type of the seeds."""
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
