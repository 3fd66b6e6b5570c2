"""Runs every kernel on a GPU and compares the bits of its results with those of the CPU's kernels."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from graphfeed.ops import rows, sampling, structure
from graphfeed.ops.backend import as_int64, kernels
from graphfeed.ops.rows.cache_sets import CacheSets, find_in_sets, new_sets, replace_in_sets
from graphfeed.ops.sampling.cached_edge_values import NOT_CACHED, CachedEdgeValues, read_edges
from graphfeed.ops.structure.csc import check_csc, check_edge_types, check_joined

NUM_TYPES = 3
KEYS = (17, 23)
Move = Callable[[torch.Tensor], torch.Tensor]


class Place(NamedTuple):
    """Where a case has its tensors: `hold` moves the arrays of graphs and features, `put` all others."""

    hold: Move
    put: Move


@dataclass(frozen=True)
class Inputs:
    """A graph on the CPU in which one column has most of the edges, and seeds in it."""

    indptr: torch.Tensor
    indices: torch.Tensor
    weights: torch.Tensor
    types: torch.Tensor
    times: torch.Tensor
    seeds: torch.Tensor


class Comparison(NamedTuple):
    """What became of one case on a GPU."""

    case: str
    same: bool
    """Whether all bits are those of the CPU."""
    said: str
    """How many values were compared, or what went wrong."""


def make_inputs(num_nodes: int, hub: int) -> Inputs:
    """Make a random graph, the same at every call, whose node 1 has `hub` edges and each other one up to 15."""
    chance = torch.Generator().manual_seed(0)
    degrees = torch.randint(0, 16, (num_nodes,), generator=chance)
    degrees[1] = hub
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    size = int(indptr[-1])
    kinds = torch.randint(NUM_TYPES, (size,), generator=chance)
    owners = torch.repeat_interleave(torch.arange(num_nodes), degrees)
    return Inputs(
        indptr=indptr,
        indices=torch.randint(num_nodes, (size,), generator=chance),
        weights=torch.rand(size, generator=chance) * (torch.rand(size, generator=chance) > 0.5),
        types=((owners * NUM_TYPES + kinds).sort().values % NUM_TYPES).to(torch.uint8),
        times=torch.randint(1000, (size,), generator=chance),
        seeds=torch.cat([torch.arange(min(num_nodes, 300)), torch.tensor([1, 1])]),
    )


def compare_kernels(device: torch.device, inputs: Inputs) -> Iterator[Comparison]:
    """Run each case on a GPU, with the graph there and in page-locked memory, and compare it with the CPU.

    A case that fails does not end the others. But after an illegal access to memory, CUDA refuses all that follows.
    """
    here = Place(lambda tensor: tensor, lambda tensor: tensor)
    there = Place(lambda tensor: tensor.to(device), lambda tensor: tensor.to(device))
    over_the_bus = Place(lambda tensor: tensor.pin_memory(), lambda tensor: tensor.to(device))
    for name, case in CASES.items():
        expected = list(tensors_in(case(here, inputs)))
        for title, place in ((name, there), (f"{name}, from page-locked memory", over_the_bus)):
            if place is over_the_bus and case not in READ_BY_UVA:
                continue
            try:
                found = [tensor.cpu() for tensor in tensors_in(case(place, inputs))]
            except Exception as error:
                yield Comparison(title, False, f"{type(error).__name__}: {error}")
                continue
            yield compare(title, found, expected)


def compare(title: str, found: list[torch.Tensor], expected: list[torch.Tensor]) -> Comparison:
    """Compare results bit by bit."""
    shapes = [[(tensor.dtype, tuple(tensor.shape)) for tensor in side] for side in (found, expected)]
    if shapes[0] != shapes[1]:
        return Comparison(title, False, f"the CPU's results are {shapes[1]}, but the GPU's are {shapes[0]}")
    differ = sum(int((mine != its).sum()) for mine, its in zip(found, expected, strict=True))
    count = sum(tensor.numel() for tensor in expected)
    if differ:
        return Comparison(title, False, f"{differ} of {count} values differ from the CPU's")
    return Comparison(title, True, f"{count} values are the CPU's")


def tensors_in(result: Any) -> Iterator[torch.Tensor]:
    """Return the tensors of a result, which may be nested."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (list, tuple)):
        for part in result:
            yield from tensors_in(part)


def copy_rows_case(place: Place, inputs: Inputs) -> Any:
    """Rows of several widths, read by index and written by index."""
    del inputs
    results = []
    for width, dtype in ((1, torch.float32), (3, torch.uint8), (40, torch.float16), (100, torch.float32)):
        values = torch.arange(2000 * width).reshape(2000, width).to(dtype)
        index = torch.arange(0, 6000, 7) % 2000
        out = place.put(torch.zeros(50, width, dtype=dtype))
        rows.copy_rows(place.hold(values), place.put(index), out, place.put(index % 51 - 1))
        results += [rows.gather_rows(place.hold(values), place.put(index)), out]
    return results


def delete_rows_case(place: Place, inputs: Inputs) -> Any:
    """Rows and columns without some places."""
    gone = place.put(torch.arange(0, int(inputs.indptr[-1]), 5))
    return [
        rows.delete_rows(place.put(inputs.indices), gone),
        rows.delete_from_columns(place.put(inputs.indptr), gone),
    ]


def cache_sets_case(place: Place, inputs: Inputs) -> Any:
    """A cache of 100 keys that is asked for more than it holds."""
    empty = new_sets(100)
    sets = CacheSets(place.put(empty.keys), place.put(empty.uses))
    results = []
    for request in range(4):
        keys = place.put(torch.unique(inputs.indices[50 * request : 50 * request + 200]))
        results += [find_in_sets(sets, keys, request), replace_in_sets(sets, keys, request)]
    return [*results, sets.keys, sets.uses]


def structure_case(place: Place, inputs: Inputs) -> Any:
    """Columns of an edge list, ids and numbers of edges, and the checks of a graph."""
    owners = structure.expand_indptr(inputs.indptr, torch.int64)
    indptr, types = place.hold(inputs.indptr.clone()), place.put(inputs.types.clone())
    check_csc(place.put(inputs.indptr), place.put(inputs.indices))
    check_edge_types(indptr, types, NUM_TYPES)
    check_joined(
        indptr, place.hold(inputs.indices.clone()), types, torch.tensor([0, len(inputs.indptr) - 1]),
        torch.zeros(NUM_TYPES, 2, dtype=torch.int64),
    )  # fmt: skip
    return [
        structure.coo_to_csc(place.put(inputs.indices), place.put(owners), len(inputs.indptr) - 1),
        structure.expand_indptr(place.put(inputs.indptr), torch.int64),
        structure.indptr_edge_ids(place.put(inputs.indptr)),
    ]


def faults_case(place: Place, inputs: Inputs) -> Any:
    """The first of many faults: columns that fall, types that are not in order, types that join no nodes."""
    falls, types = place.put(inputs.indptr.flip(0).contiguous()), place.put(inputs.types.flip(0).contiguous())
    indptr, indices = place.hold(inputs.indptr.clone()), place.hold(inputs.indices.clone())
    module = kernels("structure.csc", types, indptr=indptr, indices=indices)
    no_nodes = place.put(torch.zeros(NUM_TYPES, 2, dtype=torch.int64))
    found = [
        module.find_falling(falls),
        module.find_unsorted(as_int64(indptr, types), types),
        module.find_misjoined(as_int64(indptr, types), indices, types, no_nodes, no_nodes),
    ]
    return torch.tensor([int(first) for first in found])


def nodes_case(place: Place, inputs: Inputs) -> Any:
    """Relabelling, membership and pairs of nodes."""
    owners, few = structure.expand_indptr(inputs.indptr, torch.int64), slice(0, None, 11)
    pairs = torch.stack([inputs.indices, owners], 1)[few].contiguous()
    columns = torch.arange(len(inputs.indptr) - 1)
    return [
        structure.compact(place.put(inputs.seeds), place.put(inputs.indices)),
        structure.isin(place.put(inputs.indices), place.put(inputs.seeds[few].contiguous())),
        structure.match_pairs(*map(place.put, (inputs.indptr, inputs.indices, columns, pairs))),
    ]


def negatives_case(place: Place, inputs: Inputs) -> Any:
    """Negative destinations."""
    pairs = torch.stack([inputs.seeds, inputs.seeds.flip(0)], 1)
    return sampling.sample_negatives(place.put(pairs), 3, len(inputs.indptr) - 1, KEYS[0])


def neighbours_case(place: Place, inputs: Inputs) -> Any:
    """One hop: uniform, by weight, by type, with replacement, of whole columns; by LABOR and not."""
    indptr, indices, types = (place.hold(part) for part in (inputs.indptr, inputs.indices, inputs.types))
    seeds, weights = place.put(inputs.seeds), place.hold(sampling.cumulate_weights(inputs.indptr, inputs.weights))
    starts, ends = torch.tensor([0, len(inputs.seeds)]), torch.zeros(NUM_TYPES, dtype=torch.int64)
    results = []
    for fanouts in ([5], [60], [-1], [4, -1, 0], [4, 70, 2]):
        for cumulative in (None, weights):
            for replace in (False, True):
                options: dict[str, Any] = {
                    "cumulative": cumulative, "replace": replace, "types": types, "num_types": NUM_TYPES,
                }  # fmt: skip
                picks = sampling.sample_neighbors(indptr, seeds, torch.tensor(fanouts), KEYS[0], **options)
                labor = sampling.labor_sample_neighbors(indptr, indices, seeds, torch.tensor(fanouts), KEYS, **options)
                grouped = sampling.group_by_type(picks, types, starts, ends, torch.int64)
                results += [picks.offsets, labor, grouped.indptr, grouped.positions]
    return results


def weights_case(place: Place, inputs: Inputs) -> Any:
    """Running sums of weights."""
    return [
        sampling.cumulate_weights(place.put(inputs.indptr), place.put(weights))
        for weights in (inputs.weights, inputs.weights > 0, inputs.weights.double() * 1e-40)
    ]


def cached_case(place: Place, inputs: Inputs) -> Any:
    """Values of edges of which some columns have copies."""
    picks = sampling.sample_neighbors(inputs.indptr, inputs.seeds, torch.tensor([5]), KEYS[0])
    whole = inputs.indices[: int(inputs.indptr[2])].clone()
    shifts = torch.where(inputs.seeds < 2, 0, NOT_CACHED)
    edges = CachedEdgeValues(place.hold(inputs.indices), place.put(whole), place.put(shifts))
    return read_edges(edges, place.put(picks.offsets), place.put(picks.positions))


def temporal_case(place: Place, inputs: Inputs) -> Any:
    """One hop in time: random and latest edges, windows, a second time, weights, types; by LABOR and not."""
    results: list[Any] = []
    seeds = place.put(inputs.seeds)
    limits = place.put(torch.arange(len(inputs.seeds)) * 37 % 1100)
    windows = place.put(torch.arange(len(inputs.seeds)) * 53 % 800)
    for by_type in (False, True):
        kinds = inputs.types if by_type else None
        ordered = sampling.order_by_time(inputs.indptr, inputs.times, kinds)
        assert ordered.order is not None
        positions = sampling.places_in_order(inputs.indptr, ordered.order)
        for weighted in (False, True):
            cumulative = sampling.cumulate_weights(inputs.indptr, inputs.weights[positions]) if weighted else None
            graph = sampling.TemporalGraph(
                inputs.indptr, inputs.indices, ordered.times, ordered.order, earliest=ordered.times - 100,
                cumulative=cumulative, types=inputs.types, num_types=NUM_TYPES,
            )  # fmt: skip
            parts: list[Any] = [place.hold(part) if isinstance(part, torch.Tensor) else part for part in graph]
            held = sampling.TemporalGraph(*parts)
            for fanouts in ([4, -1, 60], [-1, -1, -1]) if by_type else ([5], [60], [-1]):
                results += hops_in_time(held, (seeds, limits, torch.tensor(fanouts)), windows)
    return results


def hops_in_time(
    graph: sampling.TemporalGraph, asked: tuple[torch.Tensor, torch.Tensor, torch.Tensor], windows: torch.Tensor
) -> list[Any]:
    """Sample one hop in time in each way."""
    results: list[Any] = []
    for window in (None, windows):
        for replace in (False, True):
            given: dict[str, Any] = {"replace": replace, "windows": window}
            results.append(sampling.temporal_sample_neighbors(graph, *asked, KEYS[0], **given))
            results.append(sampling.temporal_labor_sample_neighbors(graph, *asked, KEYS, **given))
        if graph.cumulative is None:
            results.append(sampling.temporal_sample_neighbors(graph, *asked, KEYS[0], windows=window, latest=True))
    return results


def time_order_case(place: Place, inputs: Inputs) -> Any:
    """The order of the edges of each column by time."""
    indptr = place.put(inputs.indptr)
    found = sampling.order_by_time(indptr, place.put(inputs.times), place.put(inputs.types))
    assert found.order is not None
    return [found, sampling.places_in_order(indptr, found.order)]


CASES: dict[str, Callable[[Place, Inputs], Any]] = {
    "rows by index": copy_rows_case,
    "rows left out": delete_rows_case,
    "cache of rows": cache_sets_case,
    "columns of edges": structure_case,
    "faults of columns": faults_case,
    "sets of nodes": nodes_case,
    "negatives": negatives_case,
    "weights": weights_case,
    "order of time": time_order_case,
    "one hop": neighbours_case,
    "one hop from cached columns": cached_case,
    "one hop in time": temporal_case,
}
"""What is compared; all kernels are in one of them."""
READ_BY_UVA = (copy_rows_case, structure_case, faults_case, neighbours_case, cached_case, temporal_case)
