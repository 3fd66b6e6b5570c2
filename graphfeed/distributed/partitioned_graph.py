"""A graph in parts: each seed is sampled by the rank that owns it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from graphfeed import ops
from graphfeed.distributed.exchange import COUNTS, ask_owners, merge_columns
from graphfeed.distributed.graph_part import GraphPart
from graphfeed.distributed.messages import Tensors
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.peers import Peers, shared_peers
from graphfeed.ops.checks import check_ids
from graphfeed.ops.rows.gather import take_rows
from graphfeed.storage import SampledSubgraph, SamplingGraph, SamplingRequest
from graphfeed.storage.graph.one_hop import ORIGINAL_EDGE_ID, Draws, EdgeArrays, pick_neighbors, sample_one_hop
from graphfeed.storage.graph.sampled_subgraph import ByType
from graphfeed.storage.graph.sampling_graph import parse_seeds


class PartitionedGraph(SamplingGraph):
    """A graph of which each rank holds a part. Every sampler works with it as with the whole graph.

    The mini-batches are those of the whole graph on one machine, bit by bit, for any number of parts and any
    assignment of nodes to parts. A hop costs one exchange between the ranks, for all edge types together. It may be
    sampled in any number of threads, but not in worker processes.

    Args:
        part: This rank's part; rank `i` holds part `i`.
        peers: The ranks; by default, those of the default process group, shared with other graphs and features.

    Raises:
        ValueError: The number of parts is not that of the ranks, or the part is another rank's.

    Example:
        >>> from graphfeed import from_coo
        >>> from graphfeed.distributed import cut_graph
        >>> whole = from_coo(([0, 1, 2], [1, 2, 2]), num_nodes=3)
        >>> graph = PartitionedGraph(cut_graph(whole, torch.tensor([0, 0, 0]), part=0))  # a single rank owns all nodes
        >>> graph.in_subgraph(torch.tensor([2])).original_edge_ids.tolist()
        [1, 2]
    """

    def __init__(self, part: GraphPart, peers: Peers | None = None) -> None:
        self.part = part
        self.peers = shared_peers() if peers is None else peers
        check_place(part.book, self.peers, part.number)
        self._name = self.peers.serve("graph", self._answer)

    @property
    def num_nodes(self) -> int | dict[str, int]:
        """The number of nodes of the whole graph; by node type if it has types."""
        return self.part.columns.num_nodes

    @property
    def num_edges(self) -> int | dict[str, int]:
        """The number of edges of the whole graph; by edge type if it has types."""
        return self.part.num_edges

    def validate(self, request: SamplingRequest) -> None:
        """Raise if the graph can't serve a request, as the whole graph would."""
        self.part.columns.validate(request)

    def prepare(self, request: SamplingRequest) -> None:
        """Compute what a request needs of this rank's part; other ranks prepare theirs."""
        self.part.columns.prepare(request)

    def sample_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        key: int | None = None,
    ) -> SampledSubgraph:
        """Sample in-edges of the seeds: one hop, as `FusedCSCSamplingGraph.sample_neighbors` samples the whole graph.

        Args:
            seeds: Global node ids of the dtype of the graph; by node type if it has types.
            fanouts: One number for all edge types, shape (1,), or one per edge type; -1 takes all.
            replace: Whether an edge may be chosen more than once.
            probs_name: The edge attribute that holds weights or a mask; 0 is never drawn.
            key: The key of the hop (`Key.at`); by default, the result of `draw_key`.

        Raises:
            KeyError: The graph doesn't have a node type or an attribute.
            RankLostError: Another rank ended or froze.
            TypeError: Seeds of another dtype, or not by type where the graph has types.
            ValueError: A seed outside of the graph, or a wrong fan-out.
        """
        drawn = ops.draw_key() if key is None else key
        return self._sample_hop(seeds, fanouts, SamplingRequest((fanouts,), replace, probs_name), ((drawn, drawn), 0))

    def sample_layer_neighbors(
        self,
        seeds: ByType,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        random_seed: torch.Tensor | Sequence[int] | None = None,
        seed2_contribution: float = 0.0,
    ) -> SampledSubgraph:
        """Sample as `sample_neighbors`, but by variates of the neighbours (LABOR), which all ranks compute alike.

        Args:
            seeds: This, `fanouts`, `replace` and `probs_name` mean the same as there.
            random_seed: One or two whole numbers; by default, the result of `draw_key`.
            seed2_contribution: From 0 to 1: the share of the nodes that draw by the second seed.
        """
        request = SamplingRequest((fanouts,), replace, probs_name, "labor")
        return self._sample_hop(seeds, fanouts, request, parse_seeds(random_seed, seed2_contribution))

    def _sample_hop(
        self, seeds: ByType, fanouts: torch.Tensor, request: SamplingRequest, draws: Draws
    ) -> SampledSubgraph:
        """Sample one hop: ask the owners, and group what they pick by edge type."""
        columns = self.part.columns
        self.validate(request)
        options = {
            "fanouts": fanouts.tolist(),
            "replace": request.replace,
            "probs_name": request.probs_name,
            "strategy": request.strategy,
            "draws": draws,
        }
        picked: list[torch.Tensor] = []

        def ask(ids: torch.Tensor) -> EdgeArrays:
            check_ids("seeds", ids, columns.total_num_nodes)
            owners = self.part.book.owners_of(ids)
            answers = ask_owners(self.peers, self._name, self._answer, owners, options, {"ids": ids})
            offsets, edges = merge_columns(answers, self._edges(torch.empty(0, dtype=torch.int64)))
            picked.append(offsets)
            return EdgeArrays(edges["sources"], edges.get("types"), None, edges["edge_ids"])

        def take_all(ids: torch.Tensor, edges: EdgeArrays, num_types: int) -> ops.Picks:  # noqa: ARG001
            return ops.Picks(picked[0], torch.arange(int(picked[0][-1])))

        return sample_one_hop(columns, seeds, take_all, ask)[0]

    def _answer(self, options: Mapping[str, Any], questions: Mapping[str, torch.Tensor]) -> Tensors:
        """Sample in-edges of nodes that this rank owns."""
        columns, ids, fanouts = self.part.columns, questions["ids"], torch.tensor(options["fanouts"])
        strangers = ids[self.part.book.owners_of(ids) != self.part.number]
        if strangers.numel():
            raise ValueError(
                f"part {self.part.number} was asked for node {int(strangers[0])}, which it does not own; "
                "all ranks must have the same assignment"
            )
        keys, share = options["draws"]
        request = SamplingRequest((fanouts,), options["replace"], options["probs_name"], options["strategy"])
        edges = EdgeArrays.of(columns, request.probs_name)
        num_types = len(self.edge_types) or 1
        pick = pick_neighbors(columns, fanouts, request, ((keys[0], keys[1]), share))
        offsets, positions = pick(ids, edges, num_types)
        if columns.type_per_edge is not None:
            positions = sort_within_columns(columns.csc_indptr, ids, offsets, positions)
        return {COUNTS: offsets.diff().int(), **self._edges(positions)}

    def _edges(self, positions: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return what is sent of some edges of this part."""
        columns = self.part.columns
        edges = {"sources": columns.indices, "edge_ids": columns.edge_attributes[ORIGINAL_EDGE_ID]}
        if columns.type_per_edge is not None:
            edges["types"] = columns.type_per_edge
        return {name: take_rows(values, positions) for name, values in edges.items()}

    def __reduce__(self) -> Any:
        raise TypeError(
            "a PartitionedGraph can't be sent to another process, which would not be a rank; "
            "use the DataLoader with worker='thread'"
        )

    def __repr__(self) -> str:
        """Return the whole graph's numbers of nodes and edges, and which part this is."""
        part = f"part {self.part.number} of {self.part.book.num_parts}"
        return f"PartitionedGraph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, {part})"


def sort_within_columns(
    indptr: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Return the positions of edges, ascending inside of each column, as a hop with types has them.

    Args:
        indptr: The graph's column starts.
        ids: The node of each column.
        offsets: Where each column's edges start.
        positions: Positions in the graph's arrays of edges.
    """
    if positions.numel() == 0:
        return positions
    # One sort of whole numbers: those of a column lie between those of the columns before and behind it.
    first = take_rows(indptr, ids).long()
    longest = int((take_rows(indptr, ids + 1).long() - first).max())
    shift = torch.arange(ids.numel()) * longest - first
    shifts = shift.repeat_interleave(offsets.diff(), output_size=positions.numel())
    return torch.from_numpy(np.sort((positions + shifts).numpy())) - shifts


def check_place(book: PartBook, peers: Peers, part: int | None = None) -> None:
    """Raise unless there is a rank for each part, and this rank has its own."""
    if book.num_parts != peers.world_size:
        raise ValueError(
            f"there are {book.num_parts} parts, but {peers.world_size} ranks; start one process for each part, "
            f"as in torchrun --nproc-per-node {book.num_parts}"
        )
    if part is not None and part != peers.rank:
        raise ValueError(f"rank {peers.rank} must hold part {peers.rank}, but got part {part}")
