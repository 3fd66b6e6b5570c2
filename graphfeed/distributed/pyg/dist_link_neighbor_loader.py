"""The loader of `torch_geometric.distributed` for seeds that are edges."""

from collections.abc import Callable
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
from graphfeed.pyg.data import InputEdges, NegativeSampling, import_pyg, read_input_edges, split_edge_type
from graphfeed.pyg.loaders import TorchOptions


class DistLinkNeighborLoader(DistLoader):
    """Makes mini-batches around edges, as `torch_geometric.distributed.DistLinkNeighborLoader` is meant to.

    The mini-batches are those of `graphfeed.pyg.LinkNeighborLoader` with the same seeds and `seed` on the whole graph,
    bit by bit, for any number of parts, negatives too. `DistNeighborLoader` says what they hold and how ranks work
    together; docs/from-pyg-distributed.md has a table of the arguments.

    Args:
        edge_label_index: The seeds, global ids, shape (2, N); with types, (edge type, these). None, or a type alone:
            the edges to nodes that this rank owns.
        edge_label: The label of each seed. With binary negatives, whole labels from 0 on become 1 and more.
        edge_label_time: The time of each seed.
        num_neighbors: One number per hop, the seeds' own hop first.
        disjoint: Whether each end of a seed has nodes of its own. Always so in time.
        neg_sampling: A `NegativeSampling`, ours or PyG's, a mode, or (mode, amount). Not with `strict=True`, which
            needs all edges in one place.
        neg_sampling_ratio: The amount of binary negatives.
        time_attr: The name of whole numbers of nodes or edges; needs `edge_label_time`, and the other way around.
        kwargs: See `DistNeighborLoader`, as for the arguments that are not listed here, and for errors.
    """

    @checked
    def __init__(
        self,
        data: tuple[LocalFeatureStore, LocalGraphStore],
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
                raise ValueError("edge_label_time and time_attr go together; give both or neither")
            dist_sampler = DistNeighborSampler(
                current_ctx, data, num_neighbors, None, replace, subgraph_type, disjoint, temporal_strategy, time_attr,
                concurrency, device,
            )  # fmt: skip
        rpc_timeout = kwargs.pop("rpc_timeout", 180)
        dist_sampler.connect(find_peers(current_ctx, master_addr, master_port, rpc_timeout))
        options = TorchOptions.of(kwargs, type(self).__name__)
        negatives = NegativeSampling.cast(("binary", neg_sampling_ratio) if neg_sampling_ratio else neg_sampling)
        given = InputEdges(edge_label_index, edge_label, edge_label_time)
        pipe, input_type = edge_source(dist_sampler, options, given, negatives)
        pipe = dist_sampler.append_links_to(pipe, negatives)
        self.transform = transform
        super().__init__(
            current_ctx, master_addr, master_port, None, num_rpc_threads, rpc_timeout, dist_sampler,
            datapipe=pipe, options=options, input_type=input_type,
        )  # fmt: skip
        self.data: Any = data
        self.edge_label_index, self.neg_sampling = edge_label_index, negatives


def edge_source(
    sampler: DistNeighborSampler, options: TorchOptions, given: InputEdges, negatives: NegativeSampling | None
) -> tuple[Datapipe, tuple[str, str, str] | None]:
    """Return the first stages of a pipeline, for seeds that are perhaps none, and the edge type of the seeds."""
    data, edge_type, edges = sampler.connect(), None, given.index
    if sampler.is_hetero:
        edge_type, edges = split_edge_type(data.tables, edges)
    if edges is None:
        edges = data.own_edges(edge_type)
    if isinstance(edges, torch.Tensor) and edges.numel() == 0:
        return IterableSource([]), edge_type
    index = edges if edge_type is None else (edge_type, edges)
    return options.source(read_input_edges(data.tables, given._replace(index=index), negatives).items), edge_type
