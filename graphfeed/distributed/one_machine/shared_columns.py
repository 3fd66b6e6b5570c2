"""One CSC of all parts on a machine, in shared memory, so that its ranks sample without asking each other."""

import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from graphfeed import ops
from graphfeed.distributed.edge_positions import edge_positions
from graphfeed.distributed.graph_part import GraphPart
from graphfeed.distributed.one_machine.memory_scope import open_handle, write_handle
from graphfeed.distributed.ranks.exchange import COUNTS
from graphfeed.distributed.ranks.messages import Tensors
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.ops.memory import collapse
from graphfeed.ops.rows import copy_rows, take_rows
from graphfeed.storage.features import dtype_and_shape
from graphfeed.storage.graph import FusedCSCSamplingGraph, GraphArrays
from graphfeed.storage.memory import SharedBlock, available_memory

SHARE_OF_MEMORY = 0.8
"""How much of the memory that is free the shared columns may take."""
HANDLE = "handle"
FIRST, WRITTEN = "first", "written"
"""An option of the questions of the first rank, and whether its block has been written to."""


class MachineGraph(FusedCSCSamplingGraph):
    """The graph of all parts on a machine, whose ranks share the running sums of weights too."""

    _shared: "SharedColumns | None" = None

    def cumulative_weights(self, probs_name: str) -> torch.Tensor:
        return super().cumulative_weights(probs_name) if self._shared is None else self.guided_sums(probs_name)[0]

    def guided_sums(self, probs_name: str) -> ops.GuidedSums:
        return super().guided_sums(probs_name) if self._shared is None else self._shared.sums(probs_name)


class SharedColumns:
    """The columns of all parts on this machine."""

    def __init__(self, part: GraphPart, peers: Peers) -> None:
        self.part = part
        self.peers = peers
        self.ranks: list[int] = [part.number]
        """The ranks whose parts `columns` has."""
        self.columns = part.columns
        """The graph to sample from: this rank's part, until those of all ranks here are shared."""
        self._lock = threading.Lock()
        self._opened = False
        self._edition: object = None
        """That of the part's columns when they were copied."""
        self._blocks: dict[str | None, SharedBlock] = {}
        """The columns, and by attribute the sums of weights."""
        self._name = self.serve()

    def serve(self) -> str:
        # Called for each graph over the part: where another rank has a part for each, it asks by the name of each.
        return self.peers.serve("columns", self._answer)

    def ready(self) -> FusedCSCSamplingGraph:
        """Return the graph to sample from; the first call waits for the other ranks of this machine."""
        if not self._opened:
            with self._lock:
                if not self._opened:
                    self._open()
                    self._opened = True
        # Arrays of the part that were replaced, or checked again after edits in place, differ from the copies.
        if len(self.ranks) > 1 and self._edition is not self.part.columns.edition:
            raise RuntimeError(
                f"part {self.part.number} was edited after ranks of this machine had copied its edges to shared memory;"
                " make another graph, on all ranks: PartitionedGraph(dataclasses.replace(part))"
            )
        return self.columns

    @property
    def complete(self) -> bool:
        return len(self.ranks) == self.peers.world_size

    def find_ranks(self, ids: torch.Tensor) -> torch.Tensor:
        owners = self.part.book.owners_of(ids)
        if len(self.ranks) == 1:
            return owners
        # This rank asks itself for all nodes whose columns it can read.
        ranks = torch.arange(self.peers.world_size, dtype=owners.dtype)
        ranks[self.ranks] = self.part.number
        return take_rows(ranks, owners.int())

    def sums(self, probs_name: str) -> ops.GuidedSums:
        """Return the running sums of weights, which the first rank of the machine makes for all."""
        weights = self.columns.edge_attribute(probs_name)
        with self._lock:
            if probs_name not in self._blocks:
                if self.peers.rank == self.ranks[0]:
                    made = ops.GuidedSums(ops.cumulate_weights(self.columns.csc_indptr, weights))
                    if self.columns.node_type_to_id is None:  # no kernel for types takes guides
                        made = made._replace(guides=ops.guide_sums(self.columns.csc_indptr, made.cumulative))
                    self._blocks[probs_name] = SharedBlock.create(made)
                else:
                    block = open_handle(self._ask_first(self.ranks[0], probs_name)[HANDLE])[1]
                    assert block is not None
                    self._blocks[probs_name] = block
            return ops.GuidedSums(*self._blocks[probs_name].tensors)

    def _open(self) -> None:
        """Share the columns of the ranks here, if there are several, and memory allows it."""
        ranks = self.peers.ranks_here()
        if len(ranks) == 1:
            return
        # The first rank allocates memory for the edges of all parts here, and each rank copies its part's into it.
        first = ranks[0] == self.peers.rank
        block = self._merge(ranks) if first else open_block(self._ask_first(ranks[0], None))
        if block is None:
            return
        graph = self._graph_in(block)
        # The other ranks need not check what the first one has checked.
        if first:
            graph.check()
        else:
            graph.mark_checked()
        graph._shared = self
        self._blocks[None] = block
        self._edition = self.part.columns.edition
        self.columns, self.ranks = graph, ranks

    def _ask_first(self, first: int, probs_name: str | None) -> Tensors:
        future = self.peers.ask(self._name, {"probs_name": probs_name}, {first: {}})[first]
        return self.peers.wait(first, future)

    def _answer(self, options: Mapping[str, Any], questions: Tensors) -> Tensors:
        """Answer another rank of the machine."""
        # The first rank asks for columns, and the others ask it for handles; so no two wait for each other.
        if FIRST in options:
            return self._answer_first(questions)
        self.ready()
        if options["probs_name"] is not None:
            self.sums(options["probs_name"])
        block = self._blocks.get(options["probs_name"])
        return {} if block is None else {HANDLE: write_handle(block.handle)}

    def _merge(self, ranks: list[int]) -> SharedBlock | None:
        """Have all ranks here write their columns to a new block; None if memory is short, or one of them can't."""
        arrays, book = edge_arrays(self.part.columns), self.part.book
        # First the degrees of all parts, which give each column its place; then each rank writes its own columns.
        indptr = torch.zeros(book.num_ids + 1, dtype=torch.int64)
        for rank, answer in self._ask(ranks, None).items():
            rows = dict(answer)
            indptr[book.ids_of(rank) + 1] = rows.pop(COUNTS)
            if row_types(rows) != row_types(arrays):
                raise ValueError(
                    f"rank {rank} has edges with {row_types(rows)}, but rank {self.peers.rank} with "
                    f"{row_types(arrays)}; all parts must have the same attributes"
                )
        indptr = indptr.cumsum(0)
        metas = [rows.new_empty((int(indptr[-1]), *rows.shape[1:]), device="meta") for rows in arrays.values()]
        needed, free = sum(rows.nbytes for rows in metas), available_memory()
        if needed > SHARE_OF_MEMORY * free:
            warnings.warn(
                f"the edges of the parts on this machine take {needed / 1e9:.1f} GB together, and {free / 1e9:.1f} GB "
                "are free; so ranks here ask each other as remote ones do, which is slower",
                stacklevel=2,
            )
            return None
        block = SharedBlock.allocate([indptr.to(self.part.columns.csc_indptr.dtype), *metas])
        block.tensors[0].copy_(indptr)
        if not all(answer[WRITTEN] for answer in self._ask(ranks, block).values()):
            return None
        collapse(block.memory)
        return block

    def _ask(self, ranks: Sequence[int], block: SharedBlock | None) -> dict[int, Tensors]:
        """Return the counts of the columns of each rank; with a block, let each rank write its columns to it."""
        questions = {} if block is None else {HANDLE: write_handle(block.handle)}
        others = {rank: questions for rank in ranks if rank != self.peers.rank}
        futures = self.peers.ask(self._name, {FIRST: True}, others)
        own = self._counts() if block is None else self._write(block)
        return {self.peers.rank: own} | {rank: self.peers.wait(rank, future) for rank, future in futures.items()}

    def _answer_first(self, questions: Tensors) -> Tensors:
        if HANDLE not in questions:
            return self._counts()
        block = open_block(questions)
        # A block that can't be opened on one rank is used by none.
        return {WRITTEN: torch.tensor(False)} if block is None else self._write(block)

    def _counts(self) -> Tensors:
        ids, indptr = self.part.book.ids_of(self.part.number), self.part.columns.csc_indptr
        counts = take_rows(indptr, ids + 1).long() - take_rows(indptr, ids).long()
        # Arrays without rows, which show dtypes and shapes.
        empty = {name: rows[:0] for name, rows in edge_arrays(self.part.columns).items()}
        return {COUNTS: counts, **empty}

    def _write(self, block: SharedBlock) -> Tensors:
        own, nodes = self.part.columns, self.part.book.ids_of(self.part.number).numpy()
        # A column has as many edges in both, so that their pieces go together.
        pieces = (edge_positions(indptr.numpy(), nodes) for indptr in (own.csc_indptr, block.tensors[0]))
        for positions, targets in zip(*pieces, strict=True):
            rows, to_rows = torch.from_numpy(positions), torch.from_numpy(targets)
            for values, out in zip(edge_arrays(own).values(), block.tensors[1:], strict=True):
                copy_rows(values, rows, out, to_rows, distinct=True)
        return {WRITTEN: torch.tensor(True)}

    def _graph_in(self, block: SharedBlock) -> MachineGraph:
        own = self.part.columns
        indptr, indices, *rest = block.tensors
        types = None if own.type_per_edge is None else rest.pop(0)
        attributes = dict(zip(sorted(own.edge_attributes), rest, strict=True))
        fields = {"csc_indptr": indptr, "indices": indices, "type_per_edge": types, "edge_attributes": attributes}
        return MachineGraph(**{**own.fields(), **fields})


SHARED: "weakref.WeakValueDictionary[tuple[int, int], SharedColumns]" = weakref.WeakValueDictionary()
"""The columns by the ids of their part and of their peers, which they keep alive."""


def share_columns(part: GraphPart, peers: Peers) -> SharedColumns:
    shared = SHARED.get((id(part), id(peers)))
    if shared is None:
        shared = SHARED[id(part), id(peers)] = SharedColumns(part, peers)
    else:
        shared.serve()
    return shared


def open_block(answer: Tensors) -> SharedBlock | None:
    with suppress(OSError, KeyError):  # the system forbids it, or there is no handle
        return open_handle(answer[HANDLE])[1]
    return None


def edge_arrays(columns: GraphArrays) -> dict[str, torch.Tensor]:
    types = {} if columns.type_per_edge is None else {"type_per_edge": columns.type_per_edge}
    # Sorted, because the tensors of a block have no names: all ranks must list them in one order.
    attributes = {f"attribute {name}": rows for name, rows in sorted(columns.edge_attributes.items())}
    return {"indices": columns.indices, **types, **attributes}


def row_types(arrays: Tensors) -> dict[str, str]:
    return {name: dtype_and_shape(rows.dtype, rows.shape[1:]) for name, rows in arrays.items()}
