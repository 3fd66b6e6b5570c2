"""The arrays of a graph in memory: assigning, checking, moving, saving and sharing them."""

import os
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

import torch

from graphfeed import ops
from graphfeed.ops.arguments import Tensors, as_tensor, checked
from graphfeed.ops.memory import is_page_locked, page_lock
from graphfeed.ops.process import ForkLock
from graphfeed.storage.graph.checks import as_attributes, attribute, check_attributes, check_shapes, check_types
from graphfeed.storage.graph.files.graph_file import Fields, open_shared, publish, save_fields, unpublish
from graphfeed.storage.graph.sampling.graph_files import FilesRead, files_read, in_passes, kernel_columns
from graphfeed.storage.graph.type_names import by_type_name
from graphfeed.storage.memory.shareable import Shareable
from graphfeed.storage.memory.stream_order import Published
from graphfeed.storage.memory.tensor_tree import to_device

CACHING = ForkLock()
"""Held while a graph computes arrays from its own, so that concurrent threads compute them only once."""


def validated(name: str, show: Callable[[Any], Any] | None = None) -> Any:
    """Return a property for a field. Setting it validates the graph, with a pass over the arrays."""

    def get(graph: Any) -> Any:
        value = graph.__dict__[name]
        return value if show is None else show(value)

    return property(get, lambda graph, value: graph.set_field(name, value))


def wait_for(known: tuple[Any, ...]) -> None:
    """Make the current stream wait for derived arrays, which another thread's stream may still be computing."""
    _, result, *published = known
    for stream in published:
        stream.wait(result)


class GraphArrays(Shareable):
    """The arrays of a graph: compressed sparse columns with types and attributes.

    Assigning a field validates the graph. An assignment that would make it invalid raises and changes nothing, so
    arrays that only fit together need a new graph. PyTorch has no read-only tensors, so arrays and attributes can be
    edited in place, but sampling doesn't detect this: call `check()` afterwards, which also discards derived arrays
    such as sums of weights. Sampling from invalid arrays accesses memory out of bounds.
    """

    csc_indptr: torch.Tensor = validated("csc_indptr")
    """Column starts, int32 or int64, shape (nodes + 1,). For int32, sampling keeps an int64 copy: 8 bytes per node."""
    indices: torch.Tensor = validated("indices")
    """The source of each edge, int32 or int64, shape (edges,)."""
    node_type_offset: torch.Tensor | Any = validated("node_type_offset")
    """First id of each node type, then the number of nodes. Without types, all four fields about types are None."""
    type_per_edge: torch.Tensor | Any = validated("type_per_edge")
    """Type of each edge, ascending in a column. For int16 and int64, sampling keeps an int32 copy: 4 bytes per edge."""
    node_type_to_id: dict[str, int] | Any = validated("node_type_to_id")
    """The number of each node type."""
    edge_type_to_id: dict[str, int] | Any = validated("edge_type_to_id")
    """The number of each edge type "source:relation:destination"."""
    node_attributes: Mapping[str, torch.Tensor] = validated("node_attributes", MappingProxyType)
    """Tensors with one row per node, by name; assigning replaces all of them, `add_node_attribute` adds one.

    Call `check()` after an edit in place: until then, sampling uses arrays derived from the old values, such as the
    order of times, together with the new values.
    """
    edge_attributes: Mapping[str, torch.Tensor] = validated("edge_attributes", MappingProxyType)
    """Tensors with one row per edge, in the order of `indices`, by name; assigned like `node_attributes`.

    Call `check()` after an edit in place: until then, sums of weights and the order of times are those of the old
    values.
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
        # Files and shared memory store the tensors in this order; see graph_file.ARRAYS.
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
        self._passed: Literal["", "shapes", "all"] = ""
        """What `check` or `trust_saved` has found to be valid."""

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
        """Number of nodes of all types."""
        return self.csc_indptr.numel() - 1

    @property
    def total_num_edges(self) -> int:
        """Number of edges of all types."""
        return self.indices.numel()

    @property
    def num_nodes(self) -> int | dict[str, int]:
        """Number of nodes; by node type, in the order of their ids, if the graph has types."""
        if self.node_type_to_id is None or self.node_type_offset is None:
            return self.total_num_nodes
        offsets = self.first_ids()
        by_id = sorted(self.node_type_to_id.items(), key=lambda item: item[1])
        return {node_type: offsets[number + 1] - offsets[number] for node_type, number in by_id}

    def first_ids(self) -> list[int]:
        """Return the first id of each node type, then the number of nodes. The first call synchronizes with a GPU."""
        if self.node_type_offset is None:
            return [0, self.total_num_nodes]
        if self.node_type_offset.is_cpu:
            return self.node_type_offset.tolist()
        known: list[int] | None = vars(self).get("_offsets")
        if known is None:
            # Read once from a GPU, since it synchronizes.
            known = self.__dict__["_offsets"] = self.node_type_offset.tolist()
        return known

    @property
    def num_edges(self) -> int | dict[str, int]:
        """Number of edges; by edge type if the graph has types, which takes a pass over the edges."""
        if self.edge_type_to_id is None or self.type_per_edge is None:
            return self.total_num_edges
        counts = torch.bincount(self.type_per_edge, minlength=len(self.edge_type_to_id)).tolist()
        return {edge_type: counts[number] for edge_type, number in self.edge_type_to_id.items()}

    def node_attribute(self, name: str) -> torch.Tensor:
        """Return a node attribute. An unknown name raises a KeyError that lists all names."""
        return attribute(self.node_attributes, name, "Node")

    def edge_attribute(self, name: str) -> torch.Tensor:
        """Return an edge attribute, in the order of `indices`. An unknown name raises a KeyError with all names."""
        return attribute(self.edge_attributes, name, "Edge")

    def cached(self, name: str, sources: Tensors, make: Callable[[], Tensors], *, whole: bool = True) -> Any:
        """Return the tensors of `make`, cached until the `sources` are replaced or `check` is called.

        `make` runs in one thread at a time. The results are pickled and shared with the graph, and page-locked if it
        is. On a GPU, the current stream waits for them. `whole` is as for `ensure_checked`.
        """
        with CACHING.lock:
            self.ensure_checked(whole=whole)
            known = self._cached.get(name)
            # The arrays may have been replaced since.
            if known is None or any(old is not new for old, new in zip(known[0], sources, strict=True)):
                with in_passes(self):
                    # A plain tuple: sharing the graph would treat a named tuple as a leaf.
                    made = tuple(make())
                if is_page_locked(self.indices):
                    made = tuple(None if part is None else page_lock([part], self)[0] for part in made)
                known = (sources, made, *Published.on_gpu(made))
                # A new dict, because another thread may be iterating over the old one to share the graph.
                self._cached = {**self._cached, name: known}
        wait_for(known)
        return known[1]

    def wait_for_derived(self) -> None:
        """Make the current stream wait for all arrays that were derived on a GPU."""
        for known in self._cached.values():
            wait_for(known)

    def cumulative_weights(self, probs_name: str) -> torch.Tensor:
        """Return the fixed-point running sums of an edge attribute, computed by the first call (8 bytes per edge)."""
        weights = self.edge_attribute(probs_name)
        name = f"running sums of {probs_name}"
        (sums,) = self.cached(name, (weights,), lambda: (ops.cumulate_weights(kernel_columns(self)[0], weights),))
        return sums  # type: ignore[no-any-return]

    def guided_sums(self, probs_name: str) -> ops.GuidedSums:
        """Return the running sums of an edge attribute with guides, computed by the first call (4 bytes per edge).

        There are no guides on a GPU, or if draws don't need them (see `ops.guide_sums`).
        """
        weights, sums = self.edge_attribute(probs_name), self.cumulative_weights(probs_name)
        if not sums.is_cpu:
            return ops.GuidedSums(sums)
        name = f"guides to the running sums of {probs_name}"
        (guides,) = self.cached(name, (weights,), lambda: (ops.guide_sums(kernel_columns(self)[0], sums),))
        return ops.GuidedSums(sums, guides)

    def high_degree_index(self) -> ops.HighDegreeIndex | None:
        """Return an index of the largest columns, built by the first call.

        It needs 8 bytes per node and at most one entry for every third edge. None on a GPU and for a graph with types,
        where kernels read whole columns.
        """
        if self.indices.device.type != "cpu" or self.node_type_to_id is not None:
            return None
        self.ensure_checked()  # first, since a check drops the kernel columns
        sources = (kernel_columns(self)[0], self.indices)
        make = partial(ops.build_high_degree_index, *sources)
        return ops.HighDegreeIndex(*self.cached("high-degree index", sources, make))

    def fields(self) -> Fields:
        """Return all fields by name, in the form of the constructor's arguments."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def files_read(self) -> FilesRead:
        """Return how much of the graph is in mapped files, and how this process reads it."""
        return files_read(self)

    def check(self) -> None:
        """Raise unless the arrays form a valid graph; call it after in-place edits of arrays or attributes.

        It takes a pass over each array. Derived arrays, such as sums of weights, are discarded and recomputed on
        demand. On a partitioned graph, all ranks must call it. A wrong dtype raises a TypeError; arrays that are not
        valid CSC, lengths that don't match and types that don't agree raise a ValueError.
        """
        # Cached arrays don't reflect edits in place.
        self._cached, self._passed = {}, ""
        self._check_arrays()
        self._passed = "all"

    def _check_arrays(self) -> None:
        with in_passes(self):
            ops.check_csc(self.csc_indptr, self.indices)
            check_shapes(self)
            check_types(self)

    def trust_saved(self) -> None:
        """Trust the arrays of a file that is unchanged since it was saved, and check only their shapes.

        Sampling checks the bounds of all values that it reads, so a damaged file still raises an error. Operations that
        don't, on a GPU or over the whole graph, check the arrays first. Shapes that don't agree raise a ValueError.
        """
        check_shapes(self)
        self._passed = "shapes"

    def ensure_checked(self, *, whole: bool = True) -> None:
        """Check the graph unless it has been checked, is on a GPU or, if not `whole`, comes from an unchanged file."""
        if self._passed != "all" and (whole or not self._passed) and self.csc_indptr.is_cpu and self.indices.is_cpu:
            self.check()

    @property
    def version(self) -> tuple[object, ...]:
        """Objects whose identities change when arrays or derived arrays are replaced, and after each `check`."""
        own = self.__dict__
        return own["csc_indptr"], own["indices"], own["type_per_edge"], own["_cached"]

    def set_field(self, name: str, value: Any) -> None:
        """Set a field, if the graph stays valid."""
        is_attribute = name.endswith("_attributes")
        try:
            # On another graph, so that this one is unchanged if the value is wrong.
            other = type(self)(**{**self.fields(), name: value})
            if is_attribute:
                check_attributes("node", other.node_attributes, self.total_num_nodes)
                check_attributes("edge", other.edge_attributes, self.total_num_edges)
            else:
                other.check()
        except (TypeError, ValueError) as error:
            error.add_note(f"the graph keeps its {name}; to change arrays together, build another graph")
            raise
        if not is_attribute:
            # Drops arrays derived from the old one, such as running sums of weights. In one step, because other
            # threads may be sampling.
            self.__dict__ = dict(vars(other))
            return
        with CACHING.lock:
            before, after = vars(self)[name], vars(other)[name]
            # Arrays derived from removed attributes are dropped; the others stay.
            gone = {id(values) for values in before.values()} - {id(values) for values in after.values()}
            self.__dict__[name] = after
            self._cached = {made: entry for made, entry in self._cached.items() if gone.isdisjoint(map(id, entry[0]))}

    @checked
    def to(self, device: torch.device | str) -> Self:
        """Return the graph on a device; "pinned" is page-locked CPU memory. Tensors already there are not copied."""
        if str(device) != "cpu":
            self.ensure_checked()  # GPU kernels don't check the bounds of edges
        if str(device) == "pinned" and self.indices.is_cpu:
            return self._copy_with(self.fields())._pin()
        return self._copy_with({name: to_device(value, device) for name, value in self.fields().items()})

    def _copy_with(self, fields: Fields) -> Self:
        """Return a graph with copies of the arrays, which are as valid as these."""
        duplicate = type(self)(**fields)
        duplicate._passed = self._passed
        return duplicate

    def pin_memory_(self) -> Self:
        """Page-lock the arrays until the graph is deleted, so that a GPU can read them; return this object.

        Arrays in mapped files or in shared memory, such as the large ones of `from_coo` and of data sets, are locked in
        place. Others, such as your own tensors, are copied, because they may share pages with other data. This takes
        memory twice for as long as you keep the originals. Pickling moves arrays that are not yet in shared memory to
        memory that is not locked: pin the graph afterwards. Raises a RuntimeError without a CUDA device or if CUDA
        rejects the memory, and a ValueError for arrays on a GPU.
        """
        self.ensure_checked()
        return self._pin()  # including derived arrays

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph with its attributes to a file for `load_graph`. A failure leaves the old file in place.

        The arrays are checked first, as by `check`, so that `load_graph` need not check them.
        """
        self._check_arrays()
        save_fields(Path(path), self.fields())

    @checked
    def copy_to_shared_memory(self, name: str) -> Self:
        """Return a copy in shared memory, which other processes of the same user and machine can open by its name.

        `load_from_shared_memory(name)` maps it; writes to its arrays are visible to all processes. The name exists
        until the copy is garbage-collected or its process exits (unless killed); processes that have loaded the graph
        keep it. A name in use raises a FileExistsError. Names may have letters, digits and any of "_.+-". Worker
        processes need no name: a graph pickles as a handle.
        """
        path = publish(name, self.fields())
        owner, inode = os.getpid(), path.stat().st_ino
        try:
            graph = type(self).open_by_name(name)
        except BaseException:
            unpublish(path, owner, inode)
            raise
        # The name is removed with this graph; processes that have mapped it keep the memory.
        weakref.finalize(graph, unpublish, path, owner, inode)
        return graph

    @classmethod
    def open_by_name(cls, name: str) -> Self:
        """Map a graph in shared memory."""
        graph = cls(**open_shared(name))
        graph._passed = "all"
        return graph

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "tensors" in state:  # a file of `torch.save`, which others may have written
            self._passed = ""

    def __repr__(self) -> str:
        # Counting edges by type would take a pass over them.
        types = ""
        if self.node_type_to_id is not None and self.edge_type_to_id is not None:
            types = f", node_types={list(self.node_type_to_id)}, edge_types={len(self.edge_type_to_id)}"
        return f"{type(self).__name__}(num_nodes={self.total_num_nodes}, num_edges={self.total_num_edges}{types})"


def in_one_piece(name: str, values: Any) -> Any:
    """Return a contiguous tensor, or None. An empty float tensor, such as `torch.tensor([])`, becomes int64."""
    if values is None:
        return None
    tensor = as_tensor(name, values)
    return tensor.to(torch.int64) if tensor.shape == (0,) and tensor.is_floating_point() else tensor.contiguous()
