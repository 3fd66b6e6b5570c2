"""RelBench's loader for recommendation: sources, their true destinations, and random destinations."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from graphfeed.datapipes import ListedPairSampler, MiniBatch, Transform
from graphfeed.datapipes.pipeline import find
from graphfeed.ops import Key
from graphfeed.ops.arguments import as_ids, as_tensor, brief, check_count, check_ids, check_vector, checked
from graphfeed.ops.sampling import as_times
from graphfeed.pyg import samplers
from graphfeed.pyg.data.features_of_data import features_of_data
from graphfeed.pyg.data.tables import tables_of
from graphfeed.pyg.loaders.pyg_loader import PyGLoader, TorchOptions
from graphfeed.pyg.loaders.zip_loader import ZipBatches
from graphfeed.pyg.stages.sampler_output import call_stages
from graphfeed.storage import HeteroItemSet, ItemSet
from graphfeed.storage.datasets import ItemLists
from graphfeed.storage.graph import ends_of


class EndsOfPairs(Transform, seeded=False):
    """Turns pairs into seeds that are nodes: the sources, the positive destinations, or the negative ones."""

    edge_type: str
    role: int
    """0 for the sources, 1 for the positives, 2 for the negatives."""

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        pairs, name = minibatch.seeds[self.edge_type], ends_of(self.edge_type)[int(self.role > 0)]
        part = pairs[len(pairs) // 2 :] if self.role == 2 else pairs[: len(pairs) // 2]
        nodes = part[:, int(self.role > 0)].clone(memory_format=torch.contiguous_format)
        result = MiniBatch(seeds={name: nodes}, key=minibatch.key)
        if minibatch.timestamp is not None:
            result.timestamp = {name: minibatch.timestamp[self.edge_type]}
        result.input_id = {name: nodes}  # type: ignore[attr-defined]  # as RelBench: the ids, not the positions
        return result


class SameTimeBatches:
    """Positions of items in mini-batches of one time each, in random order; those of a time's last one may be fewer."""

    def __init__(self, times: torch.Tensor, batch_size: int) -> None:
        order, (_, counts) = times.numpy().argsort(kind="stable"), np.unique(times.numpy(), return_counts=True)
        self.groups, self.batch_size = np.split(order, counts.cumsum()[:-1]), batch_size

    def __len__(self) -> int:
        return sum(-(-len(group) // self.batch_size) for group in self.groups)

    def __iter__(self) -> Iterator[list[int]]:
        parts = []
        for group in self.groups:
            shuffled = group[torch.randperm(len(group), device="cpu").numpy()].tolist()
            parts += [shuffled[start : start + self.batch_size] for start in range(0, len(shuffled), self.batch_size)]
        return (parts[place] for place in torch.randperm(len(parts), device="cpu").tolist())


class ListedLinkLoader(PyGLoader):
    """Yields triples of `HeteroData` around sources, true destinations and random ones, as RelBench does.

    The arguments, their order and the mini-batches are those of `relbench.modeling.loader.LinkNeighborLoader`. Neither
    pyg-lib nor torch-sparse is needed. The positive of a source is drawn from its list, and the negative from all
    destinations, by the key of the mini-batch: any number of workers gives the same triples. With `share_same_time`,
    the last mini-batch of each time has the rest of its rows, which RelBench drops.

    Args:
        data: A `HeteroData`.
        num_neighbors: As for `NeighborLoader`, the seeds' own hop first; so are subgraph_type, temporal_strategy and
            time_attr.
        src_nodes: Node type and ids of the sources.
        dst_nodes: Node type of the destinations, and a sparse CSR tensor with a row per source, whose columns are those
            of its list.
        num_dst_nodes: Number of destinations, from which negatives are drawn.
        src_time: The time of each source.
        share_same_time: Whether the sources of a mini-batch have the same time. The order is then random.
        strict: Whether no negative is in the list of its source.
        kwargs: See `NodeLoader`, without those about the data.

    Raises:
        ValueError: Arguments don't fit each other, or a source has no destination.
    """

    @checked
    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        src_nodes: tuple[str, torch.Tensor],
        dst_nodes: tuple[str, torch.Tensor],
        num_dst_nodes: int,
        src_time: torch.Tensor | None = None,
        share_same_time: bool = False,
        subgraph_type: Any = "directional",
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        *,
        strict: bool = False,
        **kwargs: Any,
    ) -> None:
        if (src_time is None) != (time_attr is None):
            raise ValueError("src_time needs time_attr, the name of the times of nodes or edges; give both, or neither")
        (source, nodes), (destination, matrix) = src_nodes, dst_nodes
        counts = {name: tables_of(data).count_nodes(name) for name in check_types(data, source, destination)}
        check_count("num_dst_nodes", num_dst_nodes, 1, counts[destination])
        nodes = as_ids("src_nodes", nodes).cpu()
        check_vector("src_nodes", nodes)
        nodes = nodes.to(torch.int64)
        check_ids("src_nodes", nodes, counts[source])
        lists = lists_of(matrix, len(nodes), num_dst_nodes)
        members: dict[str, Any] = {"seeds": nodes, "destinations": lists}
        if src_time is not None:
            members["timestamp"] = as_times("src_time", as_tensor("src_time", src_time).cpu())
        items = HeteroItemSet({source: ItemSet(tuple(members.values()), names=tuple(members))})
        if share_same_time:
            if src_time is None:
                raise ValueError("share_same_time needs src_time, the time of each source; give both")
            kwargs.pop("sampler", None)
            check_count("batch_size", batch_size := kwargs.pop("batch_size", 1), 1)
            kwargs["batch_sampler"] = SameTimeBatches(members["timestamp"], batch_size)
        options = TorchOptions.of(kwargs, type(self).__name__)
        sampler = samplers.NeighborSampler(
            data, num_neighbors, subgraph_type, disjoint=True, temporal_strategy=temporal_strategy, time_attr=time_attr
        )
        edge_type, features = f"{source}:target:{destination}", features_of_data(data)
        pairs = ListedPairSampler(options.source(items), edge_type, num_dst_nodes, strict=strict)
        ends = (sampler.append_to(EndsOfPairs(pairs, edge_type, role), src_time is not None) for role in range(3))
        pipes = tuple(self._fill(pipe, features) for pipe in ends)
        super().__init__(ZipBatches(pipes), options)
        self.src_nodes, self.dst_nodes, self.num_dst_nodes = src_nodes, dst_nodes, num_dst_nodes
        self.src_time, self.share_same_time = src_time, share_same_time

    def __call__(self, index: Any) -> tuple[Any, ...]:
        """Return the triple of the sources at the given positions. It belongs to no epoch; its draws are random."""
        minibatch = self._source.minibatch_of(as_tensor("index", index).cpu().to(torch.int64), 0)
        minibatch.key = Key(int(torch.randint(1 << 62, (), device="cpu")), 0, 0)  # one key, for the same pairs
        pipes: Any = next(iter(find(self.pipeline, ZipBatches)))
        return tuple(call_stages(pipe, minibatch) for pipe in pipes.datapipes)


def check_types(data: Any, *types: str) -> tuple[str, ...]:
    """Return node types; raise unless the data have them."""
    known = list(tables_of(data).nodes)
    for node_type in types:
        if node_type not in known:
            raise ValueError(f"src_nodes and dst_nodes must name node types of {known}, but name {node_type!r}")
    return types


def lists_of(matrix: Any, count: int, most: int) -> ItemLists:
    """Return the columns in each row of a sparse CSR tensor."""
    if not isinstance(matrix, torch.Tensor) or matrix.layout != torch.sparse_csr or len(matrix) != count:
        raise ValueError(f"dst_nodes must be a sparse CSR tensor with {count} rows, but is {brief(matrix)}")
    offsets, values = matrix.crow_indices().cpu(), matrix.col_indices().cpu()
    empty = (offsets.diff() == 0).nonzero()
    if len(empty):
        raise ValueError(f"dst_nodes has no destination in row {int(empty[0])}; leave out the source at that position")
    check_ids(f"dst_nodes (num_dst_nodes={most})", values, most)
    return ItemLists(values.to(torch.int64), offsets.to(torch.int64))
