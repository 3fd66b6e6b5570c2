"""The arrays of a graph in memory: set, checked, moved, saved and shared."""

import os
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import torch

from graphfeed import ops
from graphfeed.ops.arguments import Tensors, as_tensor, check_once, checked, forget_valid, has_passed, mark_valid
from graphfeed.ops.memory import is_page_locked, page_lock
from graphfeed.ops.process import ForkLock
from graphfeed.ops.structure import joined_by
from graphfeed.storage.graph.checks import as_attributes, check_attributes, check_shapes, check_types, look_up
from graphfeed.storage.graph.files.graph_file import Fields, open_shared, publish, save_fields, unpublish
from graphfeed.storage.graph.sampling.graph_files import FilesRead, files_read, in_passes, kernel_columns
from graphfeed.storage.graph.type_names import by_type_name, numbers_of
from graphfeed.storage.memory.shareable import Shareable
from graphfeed.storage.memory.stream_order import Published
from graphfeed.storage.memory.tensor_tree import move

CACHING = ForkLock()
"""Held while a graph derives arrays from its own, so that two threads don't do it twice."""


def validated(name: str, show: Callable[[Any], Any] | None = None) -> Any:
    """Return a property for a field, which validates the graph when it is set, with a pass over the arrays."""

    def get(graph: Any) -> Any:
        value = graph.__dict__[name]
        return value if show is None else show(value)

    return property(get, lambda graph, value: graph.set_field(name, value))


class GraphArrays(Shareable):
    """Compressed sparse columns with types and attributes: what a graph holds, without the sampling.

    Assigning a field validates the graph, and an assignment that would make it invalid raises and changes nothing; so
    arrays that only fit together make a new graph. PyTorch has no read-only tensors, so arrays and attributes can be
    edited in place. Sampling does not see that: call `check()` afterwards, which computes anew what depends on them,
    such as sums of weights. Sampling from arrays that are no graph reads and writes memory anywhere.
    """

    csc_indptr: torch.Tensor = validated("csc_indptr")
    """Column starts, int32 or int64, shape (nodes + 1,). Of int32, sampling keeps a copy in int64: 8 bytes per node."""
    indices: torch.Tensor = validated("indices")
    """The source of each edge, int32 or int64, shape (edges,)."""
    node_type_offset: torch.Tensor | Any = validated("node_type_offset")
    """The first id of each node type, and the number of nodes. None without types, as the other three about types."""
    type_per_edge: torch.Tensor | Any = validated("type_per_edge")
    """Each edge's type, ascending in a column. Of int16 and int64, sampling keeps a copy in int32: 4 bytes per edge."""
    node_type_to_id: dict[str, int] | Any = validated("node_type_to_id")
    """The number of each node type."""
    edge_type_to_id: dict[str, int] | Any = validated("edge_type_to_id")
    """The number of each edge type "source:relation:destination"."""
    node_attributes: Mapping[str, torch.Tensor] = validated("node_attributes", MappingProxyType)
    """Tensors with one row per node, by name; assigning replaces all of them, `add_node_attribute` adds one.

    Both are noticed. An edit in place is not: call `check()` after it, because sampling goes on with what it computed
    of the old values, such as the order of times, and compares it with the new ones.
    """
    edge_attributes: Mapping[str, torch.Tensor] = validated("edge_attributes", MappingProxyType)
    """Tensors with one row per edge, in the order of `indices`, by name; replaced as `node_attributes` are.

    Call `check()` after an edit in place here as well: before that, sums of weights and the order of times are those of
    the old values.
    """

    @checked
    def __init__(
        self,
        csc_indptr: torch.Tensor,
        indices: torch.Tensor,
        node_type_offset: torch.Tensor | None,
        type_per_edge: torch.Tensor | None,
        node_type_to_id: Mapping[str, int] | None,
        edge_type_to_id: Mapping[str, int] | None,
        node_attributes: Mapping[str, torch.Tensor] | None,
        edge_attributes: Mapping[str, torch.Tensor] | None,
    ) -> None:
        # Wherever the tensors lie together, they are in this order; see graph_file.ARRAYS.
        self.__dict__.update(
            csc_indptr=in_one_piece("csc_indptr", csc_indptr),
            indices=in_one_piece("indices", indices),
            node_type_offset=in_one_piece("node_type_offset", node_type_offset),
            type_per_edge=in_one_piece("type_per_edge", type_per_edge),
            node_type_to_id=None if node_type_to_id is None else dict(node_type_to_id),
            edge_type_to_id=None if edge_type_to_id is None else by_type_name(edge_type_to_id),
            node_attributes=as_attributes("node", node_attributes or {}),
            edge_attributes=as_attributes("edge", edge_attributes or {}),
        )
        self._cached: dict[str, tuple[Any, ...]] = {}

    @checked
    def add_node_attribute(self, name: str, tensor: torch.Tensor) -> None:
        """Add or replace an attribute with one row per node."""
        self.node_attributes = {**self.node_attributes, name: tensor}

    @checked
    def add_edge_attribute(self, name: str, tensor: torch.Tensor) -> None:
        """Add or replace an attribute with one row per edge, in the order of `indices`, not of an edge list."""
        self.edge_attributes = {**self.edge_attributes, name: tensor}

    @property
    def total_num_nodes(self) -> int:
        """The number of nodes of all types."""
        return self.csc_indptr.numel() - 1

    @property
    def total_num_edges(self) -> int:
        """The number of edges of all types."""
        return self.indices.numel()

    @property
    def num_nodes(self) -> int | dict[str, int]:
        """The number of nodes; by node type, in the order of their ids, if the graph has types."""
        if self.node_type_to_id is None or self.node_type_offset is None:
            return self.total_num_nodes
        offsets = self.first_ids()
        by_id = sorted(self.node_type_to_id.items(), key=lambda item: item[1])
        return {node_type: offsets[number + 1] - offsets[number] for node_type, number in by_id}

    def first_ids(self) -> list[int]:
        """Return the first id of each node type, and the number of nodes; waits for a GPU at the first call."""
        if self.node_type_offset is None:
            return [0, self.total_num_nodes]
        if self.node_type_offset.is_cpu:
            return self.node_type_offset.tolist()
        known: list[int] | None = vars(self).get("_offsets")
        if known is None:
            # Read once from a GPU, which is waited for.
            known = self.__dict__["_offsets"] = self.node_type_offset.tolist()
        return known

    @property
    def num_edges(self) -> int | dict[str, int]:
        """The number of edges; by edge type if the graph has types, which takes a pass over the edges."""
        if self.edge_type_to_id is None or self.type_per_edge is None:
            return self.total_num_edges
        counts = torch.bincount(self.type_per_edge, minlength=len(self.edge_type_to_id)).tolist()
        return {edge_type: counts[number] for edge_type, number in self.edge_type_to_id.items()}

    def node_attribute(self, name: str) -> torch.Tensor:
        """Return a node attribute; an unknown name raises a KeyError that lists the names."""
        return look_up(self.node_attributes, name, "Node")

    def edge_attribute(self, name: str) -> torch.Tensor:
        """Return an edge attribute, in the order of `indices`; an unknown name raises a KeyError with all names."""
        return look_up(self.edge_attributes, name, "Edge")

    def cached(self, name: str, sources: Tensors, make: Callable[[], Tensors], *, whole: bool = True) -> Any:
        """Return what `make` computes from tensors of the graph: once, until these are replaced or `check` is called.

        One thread at a time computes it. The results are pickled and shared with the graph, and page-locked if it is.
        On a GPU, streams wait for them. `whole` is as for `ensure_checked`.
        """
        with CACHING.lock:
            self.ensure_checked(whole=whole)
            known = self._cached.get(name)
            # The arrays may have been replaced since.
            if known is None or any(old is not new for old, new in zip(known[0], sources, strict=True)):
                with in_passes(self):
                    # Plain tuples: a named one would be a leaf to what shares the graph.
                    made = tuple(make())
                if is_page_locked(self.indices):
                    made = tuple(None if part is None else page_lock([part], self)[0] for part in made)
                known = (sources, made, *Published.on_gpu(made))
                # A new dict, because another thread may be going through the old one to share the graph.
                self._cached = {**self._cached, name: known}
        _, result, *published = known
        # Another thread's stream may have made them, and may not be done.
        for stream in published:
            stream.wait(result)
        return result

    def cumulative_weights(self, probs_name: str) -> torch.Tensor:
        """Return an edge attribute as fixed-point running sums, made at the first call (8 bytes per edge)."""
        weights = self.edge_attribute(probs_name)
        name = f"running sums of {probs_name}"
        (sums,) = self.cached(name, (weights,), lambda: (ops.cumulate_weights(kernel_columns(self)[0], weights),))
        return sums  # type: ignore[no-any-return]

    def guided_sums(self, probs_name: str) -> ops.GuidedSums:
        """Return the running sums of an edge attribute with guides to them, made at the first call: 4 bytes per edge.

        There are no guides on a GPU, and where draws don't need them (see `ops.guide_sums`).
        """
        weights, sums = self.edge_attribute(probs_name), self.cumulative_weights(probs_name)
        if not sums.is_cpu:
            return ops.GuidedSums(sums)
        name = f"guides to the running sums of {probs_name}"
        (guides,) = self.cached(name, (weights,), lambda: (ops.guide_sums(kernel_columns(self)[0], sums),))
        return ops.GuidedSums(sums, guides)

    def high_degree_index(self) -> ops.HighDegreeIndex | None:
        """Return an index of the largest columns, made at the first call.

        It takes 8 bytes per node and, at most, one entry for every third edge. None on a GPU and for a graph with
        types, where kernels read whole columns.
        """
        if self.indices.device.type != "cpu" or self.node_type_to_id is not None:
            return None
        self.ensure_checked()  # first, as a check drops what was made for kernels
        sources = (kernel_columns(self)[0], self.indices)
        make = partial(ops.build_high_degree_index, *sources)
        return ops.HighDegreeIndex(*self.cached("high-degree index", sources, make))

    def fields(self) -> Fields:
        """Return all fields by name, as arguments of the constructor."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def files_read(self) -> FilesRead:
        """Return how much of the graph lies in mapped files, and how samplers of this process read it."""
        return files_read(self)

    def check(self) -> None:
        """Raise unless the arrays are a valid graph; call it after edits of arrays or attributes in place.

        It takes a pass over each array, and what was computed from them, such as sums of weights, is computed anew when
        it is needed. On a graph in parts, all ranks call it. Arrays of another dtype are a TypeError; those that are no
        valid CSC, lengths that don't match and types that don't agree are a ValueError.
        """
        # Edits in place don't show in what is cached, so that is made anew.
        forget_valid("graph", self._structure())
        self._cached = {}
        self._check_arrays()
        self.mark_checked()

    def _check_arrays(self) -> None:
        with in_passes(self):
            ops.check_csc(self.csc_indptr, self.indices)
            check_shapes(self)
            check_types(self)

    def take_as_saved(self) -> None:
        """Take the arrays of a file that is as it was saved as a valid graph: without a pass over them.

        Sampling compares all that it reads of them with their sizes, so if the file is damaged after all, that is an
        error. What would read them without a look, on a GPU or to compute something for the whole graph, checks them
        first. Shapes that don't agree are a ValueError here.
        """
        check_shapes(self)
        self.mark_for_sampling(self.csc_indptr, self.type_per_edge)
        mark_valid("saved graph", self._structure())

    def ensure_checked(self, *, whole: bool = True) -> None:
        """Check the graph unless it was when it was made or, if not `whole`, comes from a file that is as saved."""
        # By identity of the arrays: which check they have passed is noted beside them.
        arrays = self._structure()
        if not has_passed("graph", arrays) and (whole or not has_passed("saved graph", arrays)):
            check_once("graph", arrays, self.check)

    def mark_checked(self) -> None:
        """Take the arrays as a valid graph, without a pass over them."""
        self.mark_for_sampling(self.csc_indptr, self.type_per_edge)
        mark_valid("graph", self._structure())

    def mark_for_sampling(self, indptr: torch.Tensor, types: torch.Tensor | None) -> None:
        """Have operations take the arrays, or copies of column starts and edge types, without a pass over them."""
        mark_valid("columns", (indptr,))
        mark_valid("csc", (indptr, self.indices))
        if self.edge_type_to_id is not None:
            assert self.node_type_to_id is not None
            assert self.node_type_offset is not None
            mark_valid(("types", len(self.edge_type_to_id)), (indptr, types))
            ends = numbers_of(self.node_type_to_id, self.edge_type_to_id).ends
            mark_valid(joined_by(self.node_type_offset, ends), (indptr, self.indices, types))

    def _structure(self) -> Tensors:
        """Return the arrays that are checked together: they decide where sampling reads and writes."""
        own = self.__dict__
        return own["csc_indptr"], own["indices"], own["node_type_offset"], own["type_per_edge"]

    @property
    def version(self) -> tuple[object, ...]:
        """What is another object once arrays, or what is computed of them, are replaced, and after each `check`."""
        own = self.__dict__
        return own["csc_indptr"], own["indices"], own["type_per_edge"], own["_cached"]

    def set_field(self, name: str, value: Any) -> None:
        """Set a field, if the graph stays valid."""
        is_attribute = name.endswith("_attributes")
        try:
            # Tried on another graph, so that this one stays as it is if the value is wrong.
            other = type(self)(**{**self.fields(), name: value})
            if is_attribute:
                check_attributes("node", other.node_attributes, self.total_num_nodes)
                check_attributes("edge", other.edge_attributes, self.total_num_edges)
            else:
                other.check()
        except (TypeError, ValueError) as error:
            error.add_note(f"the graph keeps its {name}; to change arrays together make another graph")
            raise
        if not is_attribute:
            # Whatever was computed from the old array, such as running sums of weights, is dropped with it.
            # In one step, because other threads may be sampling.
            self.__dict__ = dict(vars(other))
            return
        with CACHING.lock:
            before, after = vars(self)[name], vars(other)[name]
            # Whatever was computed of attributes that are gone goes with them; the rest stays.
            gone = {id(values) for values in before.values()} - {id(values) for values in after.values()}
            self.__dict__[name] = after
            self._cached = {made: entry for made, entry in self._cached.items() if gone.isdisjoint(map(id, entry[0]))}

    @checked
    def to(self, device: torch.device | str) -> Self:
        """Return the graph on another device; "pinned" is page-locked CPU memory. Tensors that are there stay."""
        if str(device) != "cpu":
            self.ensure_checked()  # a GPU's kernels don't look whether an edge leads out of the arrays
        if str(device) == "pinned" and self.indices.is_cpu:
            return type(self)(**self.fields())._pin()
        return type(self)(**{name: move(value, device) for name, value in self.fields().items()})

    def pin_memory_(self) -> Self:
        """Page-lock the arrays until the graph is deleted, so that a GPU can read them; return this object.

        Arrays in mapped files or in shared memory, as the large ones of `from_coo` and of data sets, are locked where
        they lie. Others, such as your own tensors, are copied, because they may share pages with other memory: that
        takes the memory of both for as long as you keep yours. Pickling moves what is not in shared memory yet to
        memory that is not locked: pin it then. Without a CUDA device, or where CUDA refuses the memory, this is a
        RuntimeError; for arrays on a GPU, a ValueError.
        """
        self.ensure_checked()
        return self._pin()  # including what was computed from the fields

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph with its attributes to a file for `load_graph`; a failure leaves the old file in place.

        The arrays are checked first, as by `check`, so that `load_graph` need not.
        """
        self._check_arrays()
        save_fields(Path(path), self.fields())

    @checked
    def copy_to_shared_memory(self, name: str) -> Self:
        """Return a copy in shared memory, which other processes of the same user and machine can open by its name.

        `load_from_shared_memory(name)` maps it; a write to its arrays is visible to all processes. The name lasts until
        the copy is garbage-collected or its process ends (except by a kill); whoever has loaded the graph keeps it.
        A name that is taken is a FileExistsError; it may have letters, digits and any of "_.+-". Worker processes need
        no name: a graph pickles as a handle.
        """
        path = publish(name, self.fields())
        owner, inode = os.getpid(), path.stat().st_ino
        try:
            graph = type(self).open_by_name(name)
        except BaseException:
            unpublish(path, owner, inode)
            raise
        # The name is removed with this graph; who has mapped it keeps the memory.
        weakref.finalize(graph, unpublish, path, owner, inode)
        return graph

    @classmethod
    def open_by_name(cls, name: str) -> Self:
        """Map a graph in shared memory."""
        graph = cls(**open_shared(name))
        graph.mark_checked()
        return graph

    def __repr__(self) -> str:
        # The number of edges by type would take a pass over them.
        types = ""
        if self.node_type_to_id is not None and self.edge_type_to_id is not None:
            types = f", node_types={list(self.node_type_to_id)}, edge_types={len(self.edge_type_to_id)}"
        return f"{type(self).__name__}(num_nodes={self.total_num_nodes}, num_edges={self.total_num_edges}{types})"


def in_one_piece(name: str, values: Any) -> Any:
    """Return a contiguous tensor, or None; of no edges, `torch.tensor([])` is one of int64, not of float32."""
    if values is None:
        return None
    tensor = as_tensor(name, values)
    return tensor.to(torch.int64) if tensor.shape == (0,) and tensor.is_floating_point() else tensor.contiguous()
