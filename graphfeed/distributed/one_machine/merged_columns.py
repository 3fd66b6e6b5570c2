"""The columns of all parts on a machine, put together in shared memory once, so that its ranks sample without asking.

The first of the ranks there puts them together when one of them asks for it. The others map what it made.
"""

import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import torch

from graphfeed import ops
from graphfeed.distributed.graph_part import GraphPart
from graphfeed.distributed.one_machine.memory_scope import open_place, write_place
from graphfeed.distributed.one_machine.shared_sums import GraphWithSharedSums, SharedSums
from graphfeed.distributed.part_book import check_owned
from graphfeed.distributed.ranks.exchange import COUNTS, starts_of
from graphfeed.distributed.ranks.messages import Tensors
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.ops.rows.copy_rows import copy_rows
from graphfeed.ops.rows.gather import take_rows
from graphfeed.ops.shared_memory import align, collapse
from graphfeed.storage.features.feature import dtype_and_shape
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampling.one_hop import ORIGINAL_EDGE_ID
from graphfeed.storage.memory.available_memory import available_memory
from graphfeed.storage.memory.shared import SharedBlock

EDGES_AT_ONCE = 1 << 20
"""How many edges another rank is asked for at a time."""
PLACE = "place"
SHARE_OF_MEMORY = 0.8
"""How much of the memory that is free the merged columns may take."""
INDPTR, INDICES, TYPES, ATTRIBUTE = "csc_indptr", "indices", "type_per_edge", "attribute "
IDS = f"{ATTRIBUTE}{ORIGINAL_EDGE_ID}"
HAS_IDS = "has_ids"
Sources: TypeAlias = tuple[object, dict[str, torch.Tensor]]
"""Arrays by name, and the edition of the graph that has them."""


class MergedColumns:
    """The columns of the parts that lie on this machine.

    They are copies. Each rank sees by its own part that edges or their attributes were replaced, or checked after edits
    in place, and reads no copies from before. No rank sees another rank's edits without asking it, which reading copies
    saves. So all ranks have to edit their parts alike, and none may sample meanwhile.

    Args:
        part: This rank's part.
        peers: The ranks.
    """

    def __init__(self, part: GraphPart, peers: Peers) -> None:
        self.part = part
        self.peers = peers
        self.ranks: list[int] = [part.number]
        """The ranks whose parts `columns` has."""
        self.columns = part.columns
        """The columns to sample from: this rank's own, until all were put together."""
        self._lock = threading.Lock()
        self._block: SharedBlock | None = None
        self._has_ids = True
        """Whether edges have ids; without them, the id of an edge is its place."""
        self._counting = threading.Lock()
        self._sources: Sources = (None, {})
        self._edits = self._opened = -1
        """How often the part was edited, and how often it had been when the columns were put together."""
        self._name, self._merged = self._serve()
        self._sums = SharedSums(peers, self.ready)

    def use_again(self) -> None:
        """Take another graph over the same part."""
        # Another rank may have columns of its own for each graph, and asks by the names of each.
        self._serve()
        self._sums.serve()

    def _serve(self) -> tuple[str, str]:
        """Let other ranks ask for columns; return the names by which they do."""
        name = self.peers.serve("columns", self._answer)
        return name, self.peers.serve("merged columns", self._answer_merged, takes_long=True)

    def ready(self) -> FusedCSCSamplingGraph:
        """Return the columns to sample from; waits for the other ranks of this machine at first, and after edits.

        Raises:
            RankLostError: Another rank was lost.
            RuntimeError: Another rank's part was not edited as this one's.
        """
        self.peers.check()
        own = self.part.columns
        if self.peers.world_size > 1 and self._opened != (edits := self._count_edits()):
            with self._lock:
                if self._opened != edits:
                    self._open(edits)
                    self._opened = edits
        # Each rank has the attributes of all nodes itself.
        if list(map(id, self.columns.node_attributes.values())) != list(map(id, own.node_attributes.values())):
            self.columns.node_attributes = own.node_attributes
        return self.columns

    def _count_edits(self) -> int:
        """Return how often the edges of this rank's part were edited, where edits between two calls count once."""
        with self._counting:
            sources = sources_of(self.part.columns)
            if not are_unchanged(self._sources, sources):
                self._sources, self._edits = sources, self._edits + 1
            return self._edits

    def _check_edits(self, edits: int) -> None:
        """Raise unless this rank's part was edited as often as another's."""
        if (own := self._count_edits()) != edits:
            raise ValueError(
                f"part {self.part.number} was edited {own} times since it was first read, but another part {edits} "
                "times; edit all parts on their ranks, even where no value changes, and let no rank sample meanwhile"
            )

    @property
    def complete(self) -> bool:
        """Whether `columns` has all parts."""
        return len(self.ranks) == self.peers.world_size

    def find_ranks(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the rank to ask for each node: this one, for nodes whose columns it can read."""
        owners = self.part.book.owners_of(ids)
        if len(self.ranks) == 1:
            return owners
        ranks = torch.arange(self.peers.world_size, dtype=owners.dtype)
        ranks[self.ranks] = self.part.number
        return take_rows(ranks, owners.int())

    def _open(self, edits: int) -> None:
        """Map the columns of all ranks here, if there are several, and their memory can be read."""
        ranks = self.peers.ranks_here()
        self.columns, self.ranks, self._block = self.part.columns, [self.part.number], None
        if len(ranks) == 1:
            return
        if ranks[0] == self.peers.rank:
            if not self._merge(ranks, edits):
                return
        else:
            future = self.peers.ask(self._merged, {"edits": edits}, {ranks[0]: {}})[ranks[0]]
            answer = self.peers.wait(ranks[0], future)
            if PLACE not in answer:
                return
            self._has_ids = bool(answer[HAS_IDS])
            try:
                self._block = open_place(answer[PLACE])[1]
            except OSError:
                return  # the system forbids it
        assert self._block is not None
        columns = self._graph_in(self._block.tensors)
        if len(ranks) == self.peers.world_size:
            # Else the thread that answers distant ranks would have to wait for them.
            self._sums.first = ranks[0]
            columns._sums = self._sums
        self.columns, self.ranks = columns, ranks

    def _answer_merged(self, options: Mapping[str, Any], questions: Tensors) -> Tensors:  # noqa: ARG002
        """Tell another rank where the columns of all ranks here lie; nothing if they could not be put together."""
        self._check_edits(options["edits"])
        self.ready()
        if self._block is None:
            return {}
        return {PLACE: write_place(self._block.handle), HAS_IDS: torch.tensor([self._has_ids])}

    def _answer(self, options: Mapping[str, Any], questions: Tensors) -> Tensors:
        """Return how many in-edges some nodes of this rank's part have, and the edges themselves if these are asked."""
        ids = questions["ids"]
        check_owned(self.part.book, self.part.number, ids)
        if options["edits"] is not None:
            self._check_edits(options["edits"])
        indptr = self.part.columns.csc_indptr
        starts = take_rows(indptr, ids).long()
        counts = take_rows(indptr, ids + 1).long() - starts
        asked = counts if options["edges"] else counts[:0]
        positions = ops.indptr_edge_ids(starts_of(asked), offset=starts[: asked.numel()])
        arrays = edge_arrays(self.part.columns)
        return {COUNTS: counts, **{name: take_rows(rows, positions) for name, rows in arrays.items()}}

    def _merge(self, ranks: list[int], edits: int) -> bool:
        """Put the columns of some ranks together in a new block; return False if memory lacks."""
        own, arrays = self.part.columns, edge_arrays(self.part.columns)
        counts = torch.zeros(own.total_num_nodes, dtype=torch.int64)
        for rank in ranks:
            ids = self.part.book.ids_of(rank)
            answer = dict(self._columns_of(rank, ids, edges=False, edits=edits))
            counts[ids] = answer.pop(COUNTS)
            if kinds_of(answer) != kinds_of(arrays):
                raise ValueError(
                    f"rank {rank} has edges with {kinds_of(answer)}, but rank {self.peers.rank} with {kinds_of(arrays)}"
                    "; all parts must have the same attributes"
                )
        indptr = starts_of(counts)
        total = int(indptr[-1])
        given = [rows.new_empty((total, *rows.shape[1:]), device="meta") for rows in arrays.values()]
        needed, free = sum(rows.nbytes for rows in given), available_memory()
        if needed > SHARE_OF_MEMORY * free:
            warnings.warn(
                f"the edges of the parts on this machine take {needed / 1e9:.1f} GB together, and {free / 1e9:.1f} GB "
                "are free; so ranks here ask each other as distant ones do, which is slower",
                stacklevel=2,
            )
            return False
        block = SharedBlock.allocate([indptr.to(own.csc_indptr.dtype), *given])
        block.tensors[0].copy_(indptr)
        self._has_ids = self._fill(block, ranks, indptr)
        unused = 0 if self._has_ids else align(block.tensors[-1].nbytes)
        collapse(block.memory[: block.memory.size - unused])
        self._graph_in(block.tensors).check()
        self._block = block
        return True

    def _fill(self, block: SharedBlock, ranks: list[int], indptr: torch.Tensor) -> bool:
        """Write the edges of some ranks; return False if each edge's id is its place, so that ids were not written."""
        *outs, ids_out = zip(edge_arrays(self.part.columns), block.tensors[1:], strict=True)
        has_ids = len(ranks) < self.peers.world_size or ids_out[1].dtype != indptr.dtype
        for rank in ranks:
            for ids in split_ids(self.part.book.ids_of(rank), indptr.diff()):
                columns = self._columns_of(rank, ids, edges=True)
                places = ops.indptr_edge_ids(starts_of(columns[COUNTS]), offset=indptr[ids])
                if not has_ids and not torch.equal(columns[ids_out[0]], places):
                    has_ids = True
                    torch.arange(ids_out[1].numel(), out=ids_out[1])  # those of the pieces before
                rows = torch.arange(places.numel())
                for name, out in [*outs, ids_out] if has_ids else outs:
                    copy_rows(columns[name], rows, out, places, distinct=True)
        return has_ids

    def _columns_of(self, rank: int, ids: torch.Tensor, *, edges: bool, edits: int | None = None) -> Tensors:
        """Return columns of a rank, which may be this one.

        Args:
            rank: Who owns them.
            ids: The nodes whose columns they are.
            edges: Whether to return the edges too, and not their number alone.
            edits: How often the rank's part must have been edited; by default, any number of times.

        Raises:
            RankLostError: A rank was lost.
            RuntimeError: The part was edited more often, or less.
        """
        options = {"edges": edges, "edits": edits}
        if rank == self.peers.rank:
            return self._answer(options, {"ids": ids})
        future = self.peers.ask(self._name, options, {rank: {"ids": ids}})[rank]
        return self.peers.wait(rank, future)

    def _graph_in(self, tensors: list[torch.Tensor]) -> GraphWithSharedSums:
        """Return the graph whose columns lie in a block; all else it shares with the part."""
        own = self.part.columns
        indptr, *rest = tensors
        arrays = dict(zip(edge_arrays(own), rest, strict=True))
        indices, types = arrays.pop(INDICES), arrays.pop(TYPES, None)
        if not self._has_ids:
            del arrays[IDS]
        attributes = {name.removeprefix(ATTRIBUTE): rows for name, rows in arrays.items()}
        fields = {"csc_indptr": indptr, "indices": indices, "type_per_edge": types, "edge_attributes": attributes}
        graph = GraphWithSharedSums(**{**own.fields(), **fields})
        graph.mark_checked()
        return graph


SHARED: "weakref.WeakValueDictionary[tuple[int, int], MergedColumns]" = weakref.WeakValueDictionary()
"""The columns by the ids of their part and of their peers, which they keep alive."""


def share_columns(part: GraphPart, peers: Peers) -> MergedColumns:
    """Return the columns of the parts on this machine, the same ones for all graphs over a part."""
    found = SHARED.get((id(part), id(peers)))
    if found is None:
        found = SHARED[id(part), id(peers)] = MergedColumns(part, peers)
    else:
        found.use_again()
    return found


def split_ids(ids: torch.Tensor, counts: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield some nodes, so many at a time that their edges fit into a message.

    Args:
        ids: The nodes.
        counts: The number of edges of each node of the graph.
    """
    # A node without edges takes room too.
    ends = (counts[ids] + 1).cumsum(0)
    bounds = torch.tensor(range(EDGES_AT_ONCE, int(ends[-1]) if len(ends) else 0, EDGES_AT_ONCE))
    for piece in torch.tensor_split(ids, torch.searchsorted(ends, bounds).tolist()):
        if piece.numel():
            yield piece


def edge_arrays(columns: GraphArrays) -> dict[str, torch.Tensor]:
    """Return the arrays with a row per edge, by names that tell attributes from others; the last has the edges' ids."""
    types = {} if columns.type_per_edge is None else {TYPES: columns.type_per_edge}
    attributes = {f"{ATTRIBUTE}{name}": rows for name, rows in sorted(columns.edge_attributes.items())}
    ids = attributes.pop(IDS)
    return {INDICES: columns.indices, **types, **attributes, IDS: ids}


def sources_of(columns: GraphArrays) -> Sources:
    """Return the arrays that tell the edges of columns, which copies of these are made of."""
    return columns.edition, {INDPTR: columns.csc_indptr, **edge_arrays(columns)}


def are_unchanged(before: Sources, now: Sources) -> bool:
    """Tell whether the arrays are the same ones, and were not checked again."""
    same = before[0] is now[0] and before[1].keys() == now[1].keys()
    return same and all(before[1][name] is array for name, array in now[1].items())


def kinds_of(arrays: Tensors) -> dict[str, str]:
    """Return the dtype and the shape of a row of each array."""
    return {name: dtype_and_shape(rows.dtype, rows.shape[1:]) for name, rows in arrays.items()}
