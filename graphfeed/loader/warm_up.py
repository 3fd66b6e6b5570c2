"""Compiles all kernels for the CPU ahead, so that no process waits for them; for container images.

This is the command `graphfeed warm-up`.
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from graphfeed import ops
from graphfeed.datapipes import ItemSampler
from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.ops.backend import KernelLoad, load
from graphfeed.ops.checks import ID_DTYPES
from graphfeed.ops.records.crc32c import crc32c
from graphfeed.ops.records.example_layout import ExampleLayout
from graphfeed.ops.records.find_texts import find_texts, index_texts
from graphfeed.ops.records.parse_examples import parse_examples
from graphfeed.ops.records.scan_records import scan_records
from graphfeed.ops.records.write_examples import write_examples
from graphfeed.ops.rows.gather_small import take_small
from graphfeed.ops.structure.place_nodes import place_nodes
from graphfeed.storage import (
    DiskBasedFeature,
    FusedCSCSamplingGraph,
    HeteroItemSet,
    ItemSet,
    NegativeQuery,
    from_coo,
)

Dtypes = tuple[torch.dtype, torch.dtype, torch.dtype]
GRAPH_DTYPES: tuple[Dtypes, ...] = (
    (torch.int64, torch.int64, torch.uint8),
    (torch.int64, torch.int32, torch.uint8),
    (torch.int32, torch.int32, torch.uint8),
    (torch.int64, torch.int64, torch.int32),
    (torch.int64, torch.int64, torch.int64),
)
"""Of `csc_indptr`, of ids and of edge types, as `from_coo` and data sets on disk make them. `from_coo` stores more than
256 edge types as int32; a data set whose dtypes are not cast has int64. One whose dtypes are cast
has int16 for more than 256 edge types, with int32 ids. Its kernels are compiled at their first call: such graphs are
rare, and `typed_sample_hops` alone takes half a minute."""
NODES, EDGES, SEEDS = 64, 8192, 16
HUB_EDGES = 2048
"""In-edges of node 0: so many that it is worth an index, and few enough for all of them to have one."""


def warm_up() -> tuple[KernelLoad, ...]:
    """Compile every CPU kernel for the dtypes that graphs have, and keep the machine code on disk.

    A process compiles a kernel at its first call and keeps it for those that come after, so nothing needs this
    function. It moves the wait to a place of your choice: into the build of a container image, or ahead of a job that
    starts many processes. It takes some minutes the first time and some seconds from then on, and says on stderr what
    it compiles. `graphfeed warm-up` is the same as a command.

    The machine code is for this processor, this version of Numba and this version of graphfeed. Build an image on a
    machine of the kind that runs it, or set NUMBA_CPU_NAME=generic both in the image and while it is built. It lies in
    the package's own folder, or in GRAPHFEED_CACHE_DIR if that is set.

    Returns:
        The kernels that were not in use in this process before, with the types of their arguments, the seconds that
        each took, and whether it was compiled or found on disk.

    Example:
        >>> import graphfeed as gf
        >>> slowest = max(gf.warm_up(), key=lambda kernel: kernel.seconds)  # doctest: +SKIP
    """
    loads: list[KernelLoad] = []
    start = time.monotonic()

    def note(kernel: KernelLoad) -> None:
        loads.append(kernel)
        if kernel.compiled:
            sys.stderr.write(f"graphfeed: compiled {kernel.kernel} in {kernel.seconds:.1f} s\n")

    # A program may have set another default device.
    with torch.device("cpu"), load("cpu", "kernel_cache").watch_kernels(note):
        for use in uses():
            use()
    compiled = sum(kernel.compiled for kernel in loads)
    sys.stderr.write(
        f"graphfeed: {compiled} kernels compiled and {len(loads) - compiled} found on disk, "
        f"in {time.monotonic() - start:.1f} s\n"
    )
    return tuple(loads)


def uses(graph_dtypes: Iterable[Dtypes] = GRAPH_DTYPES) -> Iterator[Callable[[], Any]]:
    """Yield functions that together call every kernel, with graphs of some dtypes."""
    for dtypes in graph_dtypes:
        graph, typed = make_graph(dtypes), make_typed_graph(dtypes)
        seeds, by_type = take_seeds(graph.indices.dtype)
        for pipe in (*pipelines(seeds, graph), *pipelines(by_type, typed)):
            yield partial(exhaust, pipe)
        for pipe in (*link_pipelines(graph, None), *link_pipelines(typed, "user:knows:user")):
            yield partial(exhaust, pipe)
        yield partial(call_structure, graph)
        yield partial(call_hops_in_time, typed)
    for weights in (torch.ones(3, dtype=dtype) for dtype in (torch.float32, torch.float64, torch.bool)):
        for indptr in (torch.tensor([0, 3]), torch.tensor([0, 3], dtype=torch.int32)):
            yield partial(ops.cumulate_weights, indptr, weights)
    for indptr in (torch.tensor([0, 3]), torch.tensor([0, 3], dtype=torch.int32)):
        yield partial(ops.guide_sums, indptr, torch.tensor([1, 2, 3]))
    yield from (call_permute, call_parts, call_rows, call_disk, call_caches, call_records)


def exhaust(pipe: Datapipe) -> None:
    """Make the mini-batches of a pipeline."""
    for _ in pipe:
        pass


def make_graph(dtypes: Dtypes) -> FusedCSCSamplingGraph:
    """Return a graph with weights, times, and a node of many edges."""
    edges = torch.arange(EDGES)
    graph = from_coo(
        (edges % NODES, torch.where(edges < HUB_EDGES, 0, edges % NODES)),
        NODES,
        node_attributes={"time": torch.arange(NODES)},
        edge_attributes={"weight": torch.ones(EDGES, dtype=torch.float32), "time": edges.flip(0)},
        sort_by="time",
    )
    return with_dtypes(graph, dtypes)


def make_typed_graph(dtypes: Dtypes) -> FusedCSCSamplingGraph:
    """Return a graph of two node types and three edge types, with weights and times."""
    ends = torch.arange(EDGES) % NODES
    edges = {kind: (ends, ends.flip(0)) for kind in ("user:likes:item", "item:liked_by:user", "user:knows:user")}
    graph = from_coo(
        edges,
        {"user": NODES, "item": NODES},
        node_attributes={"time": {"user": torch.arange(NODES), "item": torch.arange(NODES)}},
        edge_attributes={
            "weight": dict.fromkeys(edges, torch.ones(EDGES, dtype=torch.float32)),
            "time": dict.fromkeys(edges, torch.arange(EDGES).flip(0)),
        },
    )
    return with_dtypes(graph, dtypes)


def with_dtypes(graph: FusedCSCSamplingGraph, dtypes: Dtypes) -> FusedCSCSamplingGraph:
    """Return a graph with its arrays in other dtypes."""
    fields = graph.fields()
    names = ("csc_indptr", "indices", "type_per_edge")
    given = {
        name: fields[name].to(dtype) for name, dtype in zip(names, dtypes, strict=True) if fields[name] is not None
    }
    return FusedCSCSamplingGraph(**{**fields, **given})


def take_seeds(dtype: torch.dtype) -> tuple[ItemSampler, ItemSampler]:
    """Return node seeds with times, without types and by type."""
    items = ItemSet((torch.arange(SEEDS, dtype=dtype), torch.full((SEEDS,), EDGES)), ("seeds", "timestamp"))
    return ItemSampler(items, SEEDS), ItemSampler(HeteroItemSet({"user": items, "item": items}), SEEDS)


def pipelines(seeds: ItemSampler, graph: FusedCSCSamplingGraph) -> Iterator[Datapipe]:
    """Yield a pipeline for each way to sample around nodes."""
    fanouts = [3, 2]
    for prob_name in (None, "weight"):
        yield seeds.sample_neighbor(graph, fanouts, prob_name=prob_name)
        yield seeds.sample_neighbor(graph, fanouts, prob_name=prob_name, deduplicate=False)
        yield seeds.sample_layer_neighbor(graph, fanouts, prob_name=prob_name)
    if graph.node_type_to_id is None:
        yield seeds.sample_neighbor(graph, fanouts, only_new=True)
    else:
        yield seeds.sample_by_budget(graph, fanouts)
    yield seeds.sample_layer_neighbor(graph, fanouts, deduplicate=False)
    yield seeds.sample_in_subgraph(graph)
    for owners in (("node",), ("edge",), ("node", "edge")):
        times: dict[str, Any] = {f"{owner}_timestamp_attr_name": "time" for owner in owners}
        yield seeds.temporal_sample_neighbor(graph, fanouts, **times)
        yield seeds.temporal_sample_layer_neighbor(graph, fanouts, **times)
        if graph.node_type_to_id is None:  # with types, `call_hops_in_time` calls the same kernels
            yield seeds.temporal_sample_neighbor(graph, fanouts, prob_name="weight", disjoint=True, **times)
    yield seeds.temporal_sample_neighbor(graph, fanouts, edge_timestamp_attr_name="time", strategy="latest")


def link_pipelines(graph: FusedCSCSamplingGraph, edge_type: str | None) -> Iterator[Datapipe]:
    """Yield a pipeline for each kind of negatives."""
    ids = torch.arange(SEEDS, dtype=graph.indices.dtype)
    items = ItemSet(torch.stack([ids, ids + 1], dim=1), "seeds")
    pairs = ItemSampler(items if edge_type is None else HeteroItemSet({edge_type: items}), SEEDS)
    uniform = pairs.sample_uniform_negative(graph, 1)
    yield uniform.sample_neighbor(graph, [3, 2]).exclude_seed_edges()
    for query in (NegativeQuery(), NegativeQuery(strict=True)):
        yield pairs.sample_negative_pairs(graph, "binary", query=query)
        yield pairs.sample_negative_pairs(graph, "triplet", query=query)


def call_hops_in_time(graph: FusedCSCSamplingGraph) -> None:
    """Sample one hop in time of a graph with types, as programs do that make their hops themselves."""
    seeds, times = {"user": torch.arange(SEEDS, dtype=graph.indices.dtype)}, {"user": torch.full((SEEDS,), EDGES)}
    for sample in (graph.temporal_sample_neighbors, graph.temporal_sample_layer_neighbors):
        sample(seeds, times, torch.tensor([3]), edge_timestamp_attr_name="time")


def call_structure(graph: FusedCSCSamplingGraph) -> None:
    """Call what programs call themselves on the arrays of a graph."""
    ids = graph.indices[:SEEDS]
    ops.isin(ids, ids)
    ops.random_walks(graph.csc_indptr, graph.indices, ids, 2, key=1)
    ops.induce_trees(graph.csc_indptr, graph.indices, ids.long(), ids.long(), torch.arange(2) * SEEDS)
    ops.unique_and_compact([ids, ids])
    ops.compact(ids, ids, num_nodes=None)
    ops.indptr_edge_ids(graph.csc_indptr, offset=graph.csc_indptr[:-1])
    ops.indptr_edge_ids(graph.csc_indptr)
    for dtype in (torch.int64, graph.indices.dtype):
        ops.expand_indptr(graph.csc_indptr, dtype)
    ops.expand_indptr(graph.csc_indptr, node_ids=torch.arange(NODES, dtype=graph.indices.dtype))
    ops.join_columns([graph.csc_indptr], [graph.indices], [torch.arange(graph.indices.numel())])
    places = torch.zeros(SEEDS, dtype=torch.int64)
    cached = ops.CachedEdgeValues(graph.indices, graph.indices[:0], torch.full((SEEDS,), ops.NOT_CACHED))
    ops.read_edges(cached, torch.arange(SEEDS + 1), places)
    counts = torch.zeros(NODES, dtype=torch.int64)
    ops.count_edges(graph.indices, counts)
    ops.assign_slots(graph.indices, counts.cumsum(0) - counts)


def call_permute() -> None:
    """Shuffle few items, and many."""
    for size in (4, 1 << 20):
        ops.permute(0, 4, size, key=1)


def call_parts() -> None:
    """Put the answers of several ranks together, whose ids are sent as int32 where they fit, and read rows of parts."""
    places, counts = torch.arange(1), torch.ones(1, dtype=torch.int32)
    kinds = (
        (torch.int64, torch.int64),
        (torch.int32, torch.int64),
        (torch.int32, torch.int32),
        (torch.uint8, torch.uint8),
    )
    for sent, dtype in kinds:
        ops.merge_columns([places], [counts], [[counts.to(sent)]], [dtype])
    take_small(places, places)
    row = torch.zeros(1, 1)
    for owners, dtype in itertools.product((torch.uint8, torch.int32), ID_DTYPES):
        parts = [row] * (1 if owners == torch.uint8 else 257)
        ops.gather_parts(parts, places.to(owners), places.to(dtype), torch.zeros(1, 1))
    for dtype in ID_DTYPES:
        indptr = torch.tensor([0, 1], dtype=dtype)
        place_nodes(
            indptr, indptr[:1], torch.full((1,), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int64), 0, 1, 1
        )


def call_rows() -> None:
    """Draw rows, gather rows of all sizes, and delete some."""
    ops.draw_places(2, 1, 4)
    for ids in (torch.arange(2), torch.arange(2, dtype=torch.int32)):
        for row_bytes in (1, 2, 4, 8, 3):
            ops.gather_rows(torch.zeros(4, row_bytes, dtype=torch.uint8), ids)
    ops.delete_rows(torch.zeros(4, 3), torch.arange(2))


def call_disk() -> None:
    """Read rows from a file."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, np.zeros((4, 3)))
        file.flush()
        DiskBasedFeature(file.name).read(torch.arange(2))


def call_caches() -> None:
    """Ask the caches of features."""
    keys = torch.arange(4)
    state, sets = ops.new_policy("s3-fifo", 2), ops.new_sets(64)
    ops.find_keys(state, keys)
    ops.replace_keys(state, keys)
    ops.clear_policy(state)
    ops.find_in_sets(sets, keys, request=0)
    ops.replace_in_sets(sets, keys, request=0)
    ops.copy_rows(torch.zeros(4, 3), keys, torch.zeros(4, 3), keys)


def call_records() -> None:
    """Write a TFRecord, and read it."""
    layout = ExampleLayout(["id"], ["int64"], counts=[1], widths=[8])
    data = write_examples(torch.arange(1).view(torch.uint8), 1, layout)
    starts, sizes = torch.zeros(2, 1, dtype=torch.int64)
    scan_records(data, starts, sizes, 0, verify=True)
    out = torch.zeros(layout.buffer_bytes(1), dtype=torch.uint8)
    parse_examples(data, starts, sizes, layout, out)
    parse_examples(data, starts, sizes, layout, out, {"id": torch.zeros(1, dtype=torch.int64)})
    crc32c(data)
    texts, offsets = data[:4], torch.tensor([0, 2, 4])
    find_texts(texts, offsets, index_texts(texts, offsets), texts, offsets)


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    """Add no arguments: the command takes none."""


def run(_options: Any) -> None:
    """Run the command."""
    warm_up()
