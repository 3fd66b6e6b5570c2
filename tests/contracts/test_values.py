"""Graphs, features, item sets, mini-batches and other values can be copied, pickled, printed and moved.

Their numbers may come in any container.
"""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.storage import CPUFeatureCache, GPUFeatureCache, OnDiskTask, fused_csc_sampling_graph
from graphfeed.storage.graph import to_coo
from graphfeed.storage.memory import tensors_in
from tests.kinds.array_likes import AS
from tests.kinds.digests import assert_same

Convert = Callable[[torch.Tensor], Any]
"""Put numbers into another container."""
KIND = ("user", "likes", "item")
FEW, MANY = 8, 20_000


@dataclass(frozen=True)
class Kind:
    """How to make a value from an array of that many numbers, and what it shows of them."""

    make: Callable[[Convert, int, Path], Any]
    look: Callable[[Any], Any]
    of_arrays: bool = True
    """Whether its numbers may come in any container."""
    most_bytes: int | None = 1 << 13
    """The size of the pickle of a large one, whose arrays are in shared memory or in a file; None if it has them."""


def ends(size: int) -> torch.Tensor:
    return torch.stack([torch.arange(size), torch.arange(size).flip(0)])


def rows(size: int) -> torch.Tensor:
    return torch.arange(2.0 * size).reshape(size, 2)


def graph(convert: Convert, size: int, folder: Path) -> gf.FusedCSCSamplingGraph:
    attributes = {"w": convert(torch.arange(1.0 * size)), "time": convert(torch.arange(size).flip(0))}
    nodes = {"age": convert(torch.arange(size))}
    return gf.from_coo(convert(ends(size)), size, node_attributes=nodes, edge_attributes=attributes, sort_by="time")


def typed_graph(convert: Convert, size: int, folder: Path) -> gf.FusedCSCSamplingGraph:
    edges: Any = {KIND: (convert(ends(size)[0]), convert(ends(size)[1]))}
    weights = {KIND: convert(torch.arange(1.0 * size))}
    return gf.from_coo(edges, {"user": size, "item": size}, edge_attributes={"w": weights})


def columns(convert: Convert, size: int, folder: Path) -> gf.FusedCSCSamplingGraph:
    made = fused_csc_sampling_graph(convert(torch.arange(size + 1)), convert(torch.arange(size)))
    made.add_edge_attribute("w", convert(torch.arange(1.0 * size)))
    made.node_attributes = {"age": convert(torch.arange(size))}
    return made


def reverse(convert: Convert, size: int, folder: Path) -> Any:
    edges: Any = {KIND: convert(ends(size).T)}
    types: Any = {KIND: ("item", "liked_by", "user")}
    return gf.add_reverse_edges(edges, types)


def in_a_file(convert: Convert, size: int, folder: Path) -> gf.DiskBasedFeature:
    np.save(folder / f"{size}.npy", rows(size).numpy())
    return gf.DiskBasedFeature(folder / f"{size}.npy", {"unit": "m"})


def in_memory(convert: Convert, size: int, folder: Path) -> gf.TorchBasedFeature:
    return gf.TorchBasedFeature(convert(rows(size)), {"unit": "m"})


def updated(convert: Convert, size: int, folder: Path) -> gf.TorchBasedFeature:
    feature = gf.TorchBasedFeature(torch.zeros(size, 2))
    feature.update(convert(rows(size)))
    feature.update(convert(rows(2) + 1), convert(torch.tensor([size - 1, 0])))
    return feature


def caches(convert: Convert, size: int, folder: Path) -> dict[str, Any]:
    """Return features that share a cache, with rows in it."""
    shared = gf.cpu_cached_feature({"a": in_memory(convert, size, folder), "b": in_a_file(convert, size, folder)}, 1200)
    shared["b"].read(torch.arange(5))
    return shared


def store(convert: Convert, size: int, folder: Path) -> gf.BasicFeatureStore:
    return gf.BasicFeatureStore({("node", None, "feat"): in_memory(convert, size, folder)})


def items(convert: Convert, size: int, folder: Path) -> gf.ItemSet:
    return gf.ItemSet((convert(torch.arange(size)), convert(rows(size))), names=("seeds", "labels"))


def typed_items(convert: Convert, size: int, folder: Path) -> gf.HeteroItemSet:
    return gf.HeteroItemSet({"user": items(convert, size, folder), "item": items(convert, size, folder)})


def hop(convert: Convert, size: int, folder: Path) -> gf.SampledSubgraph:
    return typed_graph(convert, size, folder).sample_neighbors(
        {"user": convert(torch.arange(size)), "item": torch.arange(size)}, torch.tensor([2]), key=7
    )


def batch(convert: Convert, size: int, folder: Path) -> Any:
    made = graph(convert, size, folder)
    pipe = gf.ItemSampler(items(convert, size, folder), size).sample_neighbor(made, [2])
    found: Any = next(iter(pipe.fetch_feature(store(convert, size, folder), ["feat"]).with_seed(3)))
    found.note = {"own": [torch.arange(2)]}
    return found


def read_all(feature: Any) -> Any:
    return feature.read(), feature.metadata(), feature.count(), feature.size(), feature.dtype


def read_items(found: Any) -> Any:
    return found[:], found.names, len(found)


KINDS: dict[str, Kind] = {
    "graph": Kind(graph, lambda made: made.fields()),
    "graph with types": Kind(typed_graph, lambda made: made.fields()),
    "graph of columns": Kind(columns, lambda made: made.fields()),
    "edges of a graph": Kind(lambda *given: to_coo(graph(*given)), lambda made: made, most_bytes=None),
    "reverse edges": Kind(reverse, lambda made: made, most_bytes=None),
    "feature": Kind(in_memory, read_all),
    "updated feature": Kind(updated, read_all),
    "feature in a file": Kind(in_a_file, read_all, of_arrays=False),
    "features with a cache": Kind(caches, lambda made: {name: read_all(own) for name, own in made.items()}),
    "feature with a GPU's cache": Kind(
        lambda *given: gf.gpu_cached_feature(in_memory(*given), 1200, "cpu"), lambda made: read_all(made)
    ),
    "cache": Kind(lambda _, size, __: CPUFeatureCache((size, 2), torch.float16), lambda made: made.max_size_in_bytes),
    "GPU's cache": Kind(
        lambda _, size, __: GPUFeatureCache((size, 2), torch.float16, "cpu"), lambda made: made.max_size_in_bytes
    ),
    "store": Kind(store, lambda made: {key: read_all(made[key]) for key in made.keys()}),  # noqa: SIM118
    "items": Kind(items, read_items),
    "items with types": Kind(typed_items, read_items),
    "range": Kind(lambda _, size, __: gf.ItemSet(size, names="seeds"), read_items),
    "task": Kind(
        lambda *given: OnDiskTask({"name": "t"}, items(*given), None, typed_items(*given)),
        lambda made: (made.metadata, read_items(made.train_set), made.validation_set, read_items(made.test_set)),
    ),
    "hop": Kind(hop, lambda made: made, most_bytes=None),
    "mini-batch": Kind(batch, lambda made: made, most_bytes=None),
    "weights of nodes": Kind(
        lambda convert, size, _: gf.NodeWeights(convert(torch.arange(1.0 * size))), lambda made: made, most_bytes=None
    ),
}


def as_it_is(numbers: torch.Tensor) -> torch.Tensor:
    return numbers


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_it_is_copied_pickled_in_few_bytes_and_printed_in_few_words(kind: Kind, tmp_path: Path) -> None:
    made = kind.make(as_it_is, FEW, tmp_path)
    before = copy.deepcopy(kind.look(made))
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(again) is type(made)
        assert_same(kind.look(again), before)
        assert_same(kind.look(pickle.loads(pickle.dumps(again))), before)
    assert type(made).__name__ in repr(made) or isinstance(made, (dict, tuple))
    assert_same(kind.look(made), before)
    large = kind.make(as_it_is, MANY, tmp_path)
    packed = pickle.dumps(large)
    assert kind.most_bytes is None or len(packed) < kind.most_bytes
    assert_same(kind.look(pickle.loads(packed)), kind.look(large))
    assert max(len(str(own)) for own in (made, large)) < 2500


@pytest.mark.parametrize("convert", AS.values(), ids=AS)
def test_numbers_may_come_in_any_container(convert: Convert, tmp_path: Path) -> None:
    for name, kind in KINDS.items():
        if kind.of_arrays:
            found, wanted = (kind.look(kind.make(own, FEW, tmp_path)) for own in (convert, as_it_is))
            assert_same(found, wanted, what=name)


@pytest.mark.parametrize("name", ["graph", "graph with types", "hop"])
def test_all_tensors_move_to_a_device_as_another_value(name: str, tmp_path: Path) -> None:
    made = KINDS[name].make(as_it_is, FEW, tmp_path)
    before = copy.deepcopy(KINDS[name].look(made))
    moved = KINDS[name].look(made.to("meta"))
    assert {tensor.device.type for tensor in tensors_in(moved)} == {"meta"}
    assert_same(KINDS[name].look(made), before)
    assert_same(KINDS[name].look(made.to("cpu")), before)
