"""Checks for tests of user-defined stages and samplers; an AssertionError describes the first difference."""

import hashlib
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib import import_module
from itertools import islice, pairwise
from typing import Any, TypeAlias

import numpy as np
import torch

from graphfeed.datapipes import Datapipe, Transform, apply_stages
from graphfeed.datapipes.pipeline.fluent import FLUENT, register
from graphfeed.loader import DataLoader
from graphfeed.ops import Key
from graphfeed.ops.arguments import checked, kind_of
from graphfeed.ops.process import limits
from graphfeed.storage import SampledSubgraph, SamplingGraph
from graphfeed.storage.graph import ends_of, to_type_dict

__all__ = ["assert_same", "check_sampler", "check_stage", "limits", "registered"]

PLAIN = (str, bytes, int, float, bool, type(None), torch.dtype, torch.device, Key, np.generic)
MOST_BYTES = 1 << 16
"""Maximum size of a pickled pipeline, because each worker process receives it."""
SEED = 11
CHECKSUM = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")
Text: TypeAlias = dict[str, str]
"""The parts of a mini-batch: from path to description."""


@contextmanager
def registered(**stages: type) -> Iterator[None]:
    """Register stages by their fluent names for a `with` block, and forget all names that are registered in it.

    Example:
        >>> from graphfeed import CopyTo, ItemSampler, ItemSet
        >>> with registered(move=CopyTo):
        ...     hasattr(ItemSampler(ItemSet(6, names="seeds"), 2), "move")
        True
    """
    before = dict(FLUENT)
    try:
        for name, stage in stages.items():
            register(name, stage)
        yield
    finally:
        FLUENT.clear()
        FLUENT.update(before)


@checked
def check_stage(pipe: Datapipe[Any], *, executor: Executor | None = None) -> None:
    """Check that a pipeline, and each stage in it, meets the requirements of the loader.

    Its mini-batches must be bit-identical if it is iterated twice; if all of them are kept; after pickling, into less
    than 64 KiB; with 0, 1 and 3 workers; and if an epoch is resumed in the middle. If the last stage is a `Transform`
    without its own `__iter__`, each mini-batch is also computed separately, in another order.

    Args:
        pipe: A pipeline of at least two small mini-batches, which are compared completely.
        executor: An additional executor to run the pipeline, such as a pool of processes.

    Raises:
        AssertionError: Mini-batches differ; the message names the mini-batch and its first part that differs.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> check_stage(ItemSampler(ItemSet(6, names="seeds"), batch_size=2, shuffle=True))
    """
    seeded = pipe.with_seed(SEED)
    expected = texts(seeded)
    assert len(expected) > 1, f"pipe yields {len(expected)} mini-batches; give it items for two or more"
    compare("iterated again", expected, texts(seeded))
    compare("kept while others are computed", expected, texts(list(seeded)))
    packed = pack_batch(seeded)
    size = f"pipe has {len(packed):,} bytes when it is pickled, but must have less than {MOST_BYTES:,}"
    assert len(packed) < MOST_BYTES, f"{size}; keep large arrays in files or in shared memory"
    compare("pickled", expected, texts(pickle.loads(packed)))
    if isinstance(seeded, Transform) and not seeded.traits.own_loop:
        made = texts(apply_stages([seeded], minibatch) for minibatch in reversed(list(seeded.datapipe)))
        compare("computed from the last mini-batch to the first", expected, made[::-1])
    for num_workers in (0, 1, 3):
        with DataLoader(pipe, num_workers=num_workers, seed=SEED) as loader:
            compare(f"computed with num_workers={num_workers}", expected, texts(loader))
    if executor is not None:
        with DataLoader(pipe, num_workers=2, executor=executor, seed=SEED) as loader:
            compare("computed by the executor", expected, texts(loader))
    check_resume(pipe, expected, 0, 3)
    check_resume(pipe, expected, 3, 0)


@checked
def check_sampler(
    graph: SamplingGraph, pipe: Datapipe[Any], *, executor: Executor | None = None, edges: bool = True
) -> None:
    """Check a pipeline that ends with a sampler: the requirements of `check_stage`, and its samples against the graph.

    Each sampled edge must be an edge of the graph, with the same endpoints, and the same id if it has one. The rows of
    a hop begin with its columns, the columns of a hop are the rows of the next one, and those of the last hop begin
    with the seeds if these are nodes. The input nodes are the rows of the first hop.

    Args:
        graph: The graph in memory, whose `in_subgraph` gives the existing edges.
        pipe, executor: As for `check_stage`; `pipe` may sample a user-defined graph with the same edges.
        edges: Whether sampled edges are edges of the graph. False for those that a sampler makes itself, such as the
            ends of random walks in PinSAGE.

    Raises:
        AssertionError: A requirement is not met; the message names the mini-batch and the hop.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet, from_coo
        >>> graph = from_coo(([1, 2, 3], [0, 0, 1]), num_nodes=4)
        >>> pipe = ItemSampler(ItemSet(4, names="seeds"), batch_size=2).sample_neighbor(graph, [2, 2])
        >>> check_sampler(graph, pipe)
    """
    check_stage(pipe, executor=executor)
    for index, minibatch in enumerate(pipe.with_seed(SEED)):
        hops = minibatch.sampled_subgraphs
        assert hops, f"mini-batch {index} has no sampled_subgraphs; pipe must end with a sampler"
        for place, hop in enumerate(hops if edges else ()):
            check_subgraph_edges(graph, hop, f"mini-batch {index}, hop {place}")
        for place, (outer, inner) in enumerate(pairwise(hops)):
            what = f"mini-batch {index}, hop {place}: the columns are not the rows of the next hop"
            assert_same(
                ids_by_type(outer.original_column_node_ids), ids_by_type(inner.original_row_node_ids), what=what
            )
        what = f"mini-batch {index}: input_nodes are not the rows of the first hop"
        assert_same(ids_by_type(minibatch.input_nodes), ids_by_type(hops[0].original_row_node_ids), what=what)
        for kind, seeds in ids_by_type(minibatch.seeds).items():
            columns = ids_by_type(hops[-1].original_column_node_ids)
            if seeds.dim() == 1:
                what = f"mini-batch {index}: the columns of the last hop don't begin with the seeds"
                assert_same(columns[kind][: len(seeds)], seeds, what=what)


def ids_by_type(ids: Any) -> dict[Any, Any]:
    """Return ids by type as int64, because the ids of a graph and of seeds may have different dtypes."""
    return {kind: own.long() if isinstance(own, torch.Tensor) else own for kind, own in to_type_dict(ids).items()}


def assert_same(first: object, second: object, *, what: str = "they differ") -> None:
    """Raise an AssertionError that names the first part that differs, unless two values are bit-identical.

    Compares tensors of any device, arrays, dicts including the order of keys, lists, and objects with all attributes.
    """
    left, right = dict(leaves(first)), dict(leaves(second))
    for path in [*left, *right]:
        assert left.get(path) == right.get(path), f"{what}: {path}: {left.get(path)} is not {right.get(path)}"


def texts(minibatches: Iterable[Any]) -> list[Text]:
    # Immediately, because a stage may change mini-batches that it has yielded.
    return [dict(leaves(minibatch, "minibatch")) for minibatch in minibatches]


def compare(how: str, expected: list[Text], found: list[Text]) -> None:
    for index, (one, other) in enumerate(zip(expected, found, strict=False)):
        for path in [*one, *other]:
            values = f"{shorten_checksum(other.get(path))}, not {shorten_checksum(one.get(path))}"
            differs = f"mini-batch {index} differs when {how}: {path} is {values}"
            assert one.get(path) == other.get(path), differs
    assert len(found) == len(expected), f"there are {len(found)} mini-batches when {how}, not {len(expected)}"


def shorten_checksum(text: str | None) -> str:
    """Return a description of a value, or "missing", with the first digits of its checksum."""
    return "missing" if text is None else CHECKSUM.sub(r"with checksum \1", text)


def pack_batch(pipe: Datapipe[Any]) -> bytes:
    try:
        return pickle.dumps(pipe)
    except Exception as error:
        try:  # the loader also uses cloudpickle, for functions and classes defined in a notebook
            by_value: bytes = import_module("cloudpickle").dumps(pipe)
        except Exception:
            raise AssertionError(f"pipe can't be pickled, so no worker process can run it: {error}") from error
        return by_value


def check_resume(pipe: Datapipe[Any], expected: list[Text], before: int, behind: int) -> None:
    with DataLoader(pipe, num_workers=before, seed=SEED) as loader:
        made = texts(islice(loader, len(expected) // 2))
        state = loader.state_dict()
    with DataLoader(pipe, num_workers=behind, seed=SEED) as loader:
        loader.load_state_dict(state)
        how = f"resumed in the middle, num_workers={before} before and {behind} after it"
        compare(how, expected, made + texts(loader))


def check_subgraph_edges(graph: SamplingGraph, hop: SampledSubgraph, what: str) -> None:
    """Check that the edges of a hop are edges of the graph, and that its rows begin with its columns."""
    assert hop.original_column_node_ids is not None, f"{what}: has no original_column_node_ids"
    assert hop.original_row_node_ids is not None, f"{what}: has no original_row_node_ids"
    columns, rows = ids_by_type(hop.original_column_node_ids), ids_by_type(hop.original_row_node_ids)
    for kind, ids in columns.items():
        assert_same(rows[kind][: len(ids)], ids, what=f"{what}: the rows don't begin with the columns")
    there = graph.in_subgraph(hop.original_column_node_ids)
    ids_of, all_ids = to_type_dict(hop.original_edge_ids), to_type_dict(there.original_edge_ids)
    for kind, csc in to_type_dict(hop.sampled_csc).items():
        of_type = f" of type {kind}" if kind else ""
        source_type, destination_type = ends_of(kind)
        source, starts, wanted = rows[source_type], len(csc.indptr), len(columns.get(destination_type, ())) + 1
        assert starts == wanted, f"{what}: indptr{of_type} has {starts} numbers, but must have {wanted}"
        outside = csc.indices[(csc.indices < 0) | (csc.indices >= len(source))][:1].tolist()
        assert not outside, f"{what}: indices{of_type} has {outside[0]}, but there are {len(source)} rows"
        sources = source[csc.indices.long()]
        whole = to_type_dict(there.sampled_csc)[kind]
        found, known = edges(csc.indptr, sources), edges(whole.indptr, whole.indices)
        if hop.original_edge_ids is not None:
            found, known = with_ids(found, ids_of[kind]), with_ids(known, all_ids[kind])
        wrong = sorted(set(found) - set(known))
        names = "(column, source, id)" if hop.original_edge_ids is not None else "(column, source)"
        assert not wrong, f"{what}: the graph has no edge{of_type} {names} = {wrong[:1]}"


def edges(indptr: torch.Tensor, sources: torch.Tensor) -> list[tuple[int, ...]]:
    columns = torch.repeat_interleave(torch.arange(len(indptr) - 1, device="cpu"), indptr.diff().cpu())
    return list(zip(columns.tolist(), sources.tolist(), strict=True))


def with_ids(pairs: list[tuple[int, ...]], ids: torch.Tensor) -> list[tuple[int, ...]]:
    return [(*pair, own) for pair, own in zip(pairs, ids.tolist(), strict=True)]


def tensor_text(value: torch.Tensor) -> str:
    """Return a string with dtype, shape and a hash of the bytes, but not the device."""
    shape = f"{value.dtype}{list(value.shape)}"
    if value.numel() == 0:
        return shape
    data = value.detach().cpu().to_dense().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return f"{shape} {hashlib.sha256(data).hexdigest()}"


def leaves(value: Any, path: str = "value") -> Iterator[tuple[str, str]]:
    """Yield path and description of each part of a value, including the order of dict keys and all attributes."""
    if isinstance(value, torch.Tensor):
        yield path, tensor_text(value)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        yield path, f"array {value.dtype}{list(value.shape)} {hashlib.sha256(value.tobytes()).hexdigest()}"
    elif isinstance(value, np.ndarray):
        yield from leaves(value.tolist(), path)
    elif isinstance(value, (set, frozenset)):
        yield path, f"{type(value).__name__} of {sorted(map(repr, value))}"
    elif isinstance(value, PLAIN):
        yield path, f"{type(value).__name__} {value!r}"
    elif isinstance(value, Mapping):
        yield path, f"{type(value).__name__} of {list(value)!r}"
        for name, part in value.items():
            yield from leaves(part, f"{path}[{name!r}]")
    elif isinstance(value, (list, tuple)):
        yield path, f"{type(value).__name__} of {len(value)}"
        for place, part in enumerate(value):
            yield from leaves(part, f"{path}[{place}]")
    elif hasattr(value, "to_dict"):  # PyG's data
        yield from leaves(value.to_dict(), path)
    else:
        if not hasattr(value, "__dict__"):
            what = f"{path} is {kind_of(value)}, which can't be compared"
            raise TypeError(f"{what}; use tensors, arrays, numbers, strings, or collections of these")
        attributes = vars(value)
        yield path, f"{type(value).__qualname__} with {sorted(attributes)}"
        for name in sorted(attributes):
            yield from leaves(attributes[name], f"{path}.{name}")
