"""PyG's loaders of nodes: mini-batches around seed nodes, with any sampler."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from graphfeed.ops.arguments import check_count, checked
from graphfeed.pyg import samplers
from graphfeed.pyg.data.data_features import read_features
from graphfeed.pyg.data.inputs import InputNodes, read_input_nodes
from graphfeed.pyg.data.tables import tables_of
from graphfeed.pyg.loaders.pyg_loader import SHARE, ExtraOptions, PyGLoader, read_options, weights_of
from graphfeed.pyg.stages.sample_with import SampleWith, check_sampler


class NodeLoader(PyGLoader):
    """Yields mini-batches around nodes, sampled by any of PyG's samplers or by `graphfeed.pyg.NeighborSampler`.

    The arguments, their order and the batches are those of `torch_geometric.loader.NodeLoader`; docs/from-pyg.md has a
    table. A `NeighborSampler` of this package becomes stages of the pipeline. Any other sampler becomes a stage that
    calls its `sample_from_nodes`, with torch's, NumPy's and Python's generators seeded for each mini-batch.

    Args:
        data: A `torch_geometric.data.Data` or `HeteroData`, or a pair (`FeatureStore`, `GraphStore`).
        node_sampler: The sampler.
        input_nodes: The seeds: ids or a mask; None: all nodes. With types: a node type, a tuple of one and ids, a mask
            or None, or a dict of these by node type.
        input_time: The time of each seed; required for temporal sampling if the seed nodes have no times.
        transform: A function applied to each `Data`.
        transform_sampler_output: A function applied to each sampler output, before features are fetched.
        filter_per_worker: Whether workers (True) or the main process (False) fetch features; None: whichever is faster.
        custom_cls: Class of the mini-batches of a pair of stores; None for other data.
        input_id: Value of `input_id` for each seed, instead of its position.
        kwargs: The arguments of torch's `DataLoader`, and `seed`, `worker`, `executor` and `observer` of
            `graphfeed.DataLoader` (see `TorchOptions`); `time_window`, the width of the time window before each seed,
            and `as_edge_index`, which makes `edge_index` an `EdgeIndex` (see `ExtraOptions`).
    """

    how_to_share = f"give each rank its own share of input_nodes, or pass {SHARE}"

    @checked
    def __init__(
        self,
        data: Any,
        node_sampler: Any,
        input_nodes: Any = None,
        input_time: torch.Tensor | Mapping[str, torch.Tensor] | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        custom_cls: Any = None,
        input_id: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        check_sampler(node_sampler)
        more = ExtraOptions.split_from(kwargs, node_sampler, "time_window", "as_edge_index")
        options = read_options(type(self).__name__, data, custom_cls, kwargs)
        is_own = hasattr(node_sampler, "append_to")
        seeds = InputNodes(input_nodes, input_time, input_id, window=more.time_window)
        if is_own:
            seeds = seeds._replace(node_times=node_sampler.node_times, time_attr=node_sampler.time_attr)
        nodes = read_input_nodes(data, seeds)
        pipe = options.source(nodes.items)
        if not is_own:
            pipe = SampleWith(pipe, node_sampler, nodes.input_type, input_time is not None)
        else:
            pipe = node_sampler.append_to(pipe, input_time is not None)
        self.node_sampler, self.transform = node_sampler, transform
        self.input_nodes, self.input_time, self.input_id = input_nodes, input_time, input_id
        self.transform_sampler_output, self.filter_per_worker = transform_sampler_output, filter_per_worker
        features = read_features(data, custom_cls, weights_of(node_sampler))
        pipe = self._fill(pipe, features, more.as_edge_index)
        super().__init__(pipe, options, data)


class NeighborLoader(NodeLoader):
    """Yields mini-batches of the sampled neighbourhoods of nodes, as `torch_geometric.loader.NeighborLoader` does.

    The arguments, their order and the batches are PyG's; docs/from-pyg.md has a table. The loader runs a pipeline of
    this package's stages (`pipeline`, `explain()`). Mini-batches are bit-identical for any number and kind of workers,
    `iter()` starts the next epoch, and `state_dict()` and `load_state_dict()` resume in the middle of an epoch. Neither
    pyg-lib nor torch-sparse is needed.

    The in-edges of a node are sampled once, in the hop after the one that reached it. Nodes are in the order in which
    hops reach them, seeds first; edges are in the order of the hops. With full fan-outs, mini-batches equal PyG's.
    Differences: edges of weight 0 are never drawn, times need not be sorted, and draws do not depend on threads.

    Args:
        num_neighbors: One number per hop, the seeds' own hop first, a dict of such lists by edge type, or a
            `NumNeighbors`. -1 selects all neighbours, 0 none. With types, a number applies to each edge type. With an
            empty list, a mini-batch has only the seeds.
        input_time: The time of each seed, instead of the node's time.
        replace: Whether an edge may be drawn more than once.
        subgraph_type: "directional" has the sampled edges; "bidirectional" also the reverse of each; "induced" has all
            edges between the nodes, as `directed=False` does.
        disjoint: Whether each seed has its own tree, given by `batch` for each node. Implied by temporal sampling.
        temporal_strategy: "uniform", or "last" for the most recent neighbours.
        time_attr: Name of the integer times of nodes or edges; no neighbour that is later than the seed is sampled.
        weight_attr: Name of the edge weights.
        is_sorted: Has no effect: a counting sort groups edges by destination.
        neighbor_sampler: A sampler that replaces the arguments about sampling.
        kwargs: See `NodeLoader`, as for arguments not listed here.
    """

    @checked
    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: torch.Tensor | Mapping[str, torch.Tensor] | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        **kwargs: Any,
    ) -> None:
        if input_time is not None and time_attr is None:
            raise ValueError("input_time needs time_attr, the name of the times of nodes or edges; give both")
        if neighbor_sampler is None:
            neighbor_sampler = samplers.NeighborSampler(
                data, num_neighbors, subgraph_type, replace, disjoint, temporal_strategy, time_attr, weight_attr,
                is_sorted, directed=directed,
            )  # fmt: skip
        super().__init__(
            data, neighbor_sampler, input_nodes, input_time, transform, transform_sampler_output, filter_per_worker,
            **kwargs,
        )  # fmt: skip


class HGTLoader(NodeLoader):
    """Yields mini-batches by the sampling of the heterogeneous graph transformer, like `torch_geometric`'s `HGTLoader`.

    Each hop samples a given number of nodes of each type, preferring nodes with many edges to earlier ones (see
    `graphfeed.BudgetSampler`). A mini-batch has all edges among its nodes. The nodes of each type are in the order in
    which they were sampled, seeds first. torch-sparse is not needed.

    Args:
        data: A `torch_geometric.data.HeteroData`.
        num_samples: Number of nodes per hop, the seeds' own hop first: for all node types, or by node type.
        kwargs: See `NodeLoader`, as for arguments not listed here; `is_sorted` has no effect.

    Raises:
        ValueError: `data` has no types, a node type has no numbers, a number is negative, or there are no seeds.
    """

    @checked
    def __init__(
        self,
        data: Any,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        input_nodes: Any,
        is_sorted: bool = False,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            data, samplers.HGTSampler(data, num_samples, is_sorted), input_nodes, transform=transform,
            transform_sampler_output=transform_sampler_output, filter_per_worker=filter_per_worker, **kwargs,
        )  # fmt: skip


class RandomNodeLoader(NodeLoader):
    """Splits the nodes into parts and yields the subgraph of each, as `torch_geometric.loader.RandomNodeLoader` does.

    With `shuffle=True`, each epoch has other random parts. The nodes of a mini-batch are in the order in which they
    were drawn, and its edges are grouped by destination. It also has `n_id`, `e_id` and `input_id`.

    Args:
        data: A `torch_geometric.data.Data` or `HeteroData`; a part has nodes of all types.
        kwargs: As for `NodeLoader`, without `batch_size`.

    Raises:
        ValueError: `num_parts` is below 1, or there are no nodes.
    """

    is_subgraph = True

    @checked
    def __init__(self, data: Any, num_parts: int, **kwargs: Any) -> None:
        tables = tables_of(data)
        check_count("num_parts", num_parts, 1)
        nodes = dict.fromkeys(tables.nodes) if tables.typed else None
        # No neighbours, but all edges among the seeds.
        sampler = samplers.NeighborSampler(data, [0], "induced")
        size = max(1, -(-sum(map(tables.count_nodes, tables.nodes)) // num_parts))
        super().__init__(data, sampler, nodes, batch_size=size, **kwargs)
        self.num_parts = num_parts
