"""The fingerprint of a pipeline in the state of an epoch."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

import graphfeed as gf
from graphfeed.loader import take_fingerprint
from tests.kinds import pipelines
from tests.kinds.refusals import check_refused

EDGES = torch.tensor([[1, 2, 3, 0], [0, 0, 1, 3]])
GRAPH = gf.from_coo(EDGES, num_nodes=4)


def items(count: int = 4, batch_size: int = 2, **options: Any) -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size, **options)


def with_labels() -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet((torch.arange(4), torch.arange(4)), names=("seeds", "labels")), 2)


def store(rows: torch.Tensor) -> gf.BasicFeatureStore:
    return gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(rows)})


def resume(first: gf.Datapipe, second: gf.Datapipe) -> None:
    """Load the state of one pipeline into the loader of another one."""
    state = json.loads(json.dumps(gf.DataLoader(first, num_workers=0, seed=0).state_dict(), sort_keys=True))
    gf.DataLoader(second, num_workers=0, seed=0).load_state_dict(state)


def same(batch: gf.MiniBatch) -> gf.MiniBatch:
    return batch


def scale(batch: gf.MiniBatch, *, by: int) -> gf.MiniBatch:
    return batch


@dataclass(frozen=True)
class Scale:
    by: int

    def __call__(self, batch: gf.MiniBatch) -> gf.MiniBatch:
        return batch


@dataclass
class Counter:
    """Changes while it is used, so its fields do not describe the pipeline."""

    calls: int = 0
    seen: list[int] = field(default_factory=list)

    def __call__(self, batch: gf.MiniBatch) -> gf.MiniBatch:
        self.calls += 1
        return batch


class Limits(gf.Transform):
    """A stage with a dict by type, as fan-outs may be, and with a set."""

    limits: dict[str, int]
    names: frozenset[str] = frozenset()


class Old(gf.Transform):
    """An ordinary class with a cached value."""

    def __init__(self, datapipe: gf.Datapipe, factor: float) -> None:
        super().__init__(datapipe)
        self._factor = factor


class Holds(gf.Transform):
    """Receives a value, and changes its own state while it runs."""

    def __init__(self, datapipe: gf.Datapipe, value: Any) -> None:
        super().__init__(datapipe)
        self.value = value
        self.noted: list[int] = []

    def __call__(self, batch: gf.MiniBatch) -> gf.MiniBatch:
        self.noted.append(1)
        return batch


class Two(gf.Datapipe):
    one: gf.Datapipe
    other: gf.Datapipe

    def __iter__(self) -> Iterator[Any]:
        for both in zip(self.one, self.other, strict=True):
            yield from both


def test_a_state_is_small_and_plain() -> None:
    for make in (pipelines.homogeneous, pipelines.heterogeneous, pipelines.weighted):
        text = json.dumps(gf.DataLoader(make(), num_workers=0, seed=0).state_dict())
        assert len(text) < 2000
        assert take_fingerprint(make()) == json.loads(text)["fingerprint"]


FIRST = items().transform(same)
SECOND = FIRST.datapipe.transform(Scale(1))  # type: ignore[attr-defined]
OTHERS: list[tuple[gf.Datapipe, gf.Datapipe, str]] = [
    (items(), items(batch_size=1), "batch_size of stage 1 ItemSampler is 2 in it, but 1 here"),
    (items(), items(6), r"item_set of stage 1 ItemSampler is 4 items .* in it, but 6 items .* here"),
    (items(), with_labels(), r"named \('seeds',\) in it, but .* named \('seeds', 'labels'\) here"),
    (
        gf.ItemSampler(gf.ItemSet([0, 2, 4], names="seeds"), 2),
        gf.ItemSampler(gf.ItemSet([1, 3, 5], names="seeds"), 2),
        r"item_set \(checksum\) of stage 1 ItemSampler is \w{16} in it, but \w{16} here",
    ),
    (
        items().sample_neighbor(GRAPH, [2]),
        items().sample_neighbor(gf.from_coo(EDGES.flip(0), num_nodes=4), [2]),
        r"graph \(checksum\) of stage 2 NeighborSampler is \w{16} in it, but \w{16} here",
    ),
    (
        items().fetch_feature(store(torch.zeros(4, 2)), ["x"]),
        items().fetch_feature(store(torch.ones(4, 2)), ["x"]),
        r"node x \(checksum\) of stage 2 FeatureFetcher is \w{16} in it, but \w{16} here",
    ),
    (items(), items(shuffle=True), "shuffle of stage 1 ItemSampler is False in it, but True here"),
    (
        items().sample_neighbor(GRAPH, [2, 2]),
        items().sample_neighbor(GRAPH, [*torch.tensor([2, 3])]),
        r"fanouts of stage 2 NeighborSampler is \[2, 2\] in it, but \[2, 3\] here",
    ),
    (
        items().sample_neighbor(GRAPH, [2]),
        items().sample_neighbor(gf.from_coo(EDGES[:, 1:], num_nodes=4), [2]),
        "graph of stage 2 NeighborSampler is graph of 4 nodes and 4 edges in it, but .* 3 edges here",
    ),
    (
        items().sample_neighbor(GRAPH, [2]),
        items().sample_layer_neighbor(GRAPH, [2]),
        "it has 2 NeighborSampler where this one has 2 LayerNeighborSampler",
    ),
    (items().transform(), items(), "it has 2 MiniBatchTransformer where this one has no more stages"),
    (items(), items().transform(), "it has no more stages where this one has 2 MiniBatchTransformer"),
    (
        items().transform(partial(scale, by=2)),
        items().transform(partial(scale, by=3)),
        r"transformer of .* is scale with \{'by': 2\} in it, but scale with \{'by': 3\} here",
    ),
    (items().transform(Scale(2)), items().transform(Scale(3)), r"Scale of \{'by': 2\} in it, but Scale of"),
    (Limits(items(), {"a": 1}), Limits(items(), {"a": 2}), r"limits of stage 2 Limits is \{'a': 1\} in it"),
    (Old(items(), 0.5), Old(items(), 0.25), "_factor of stage 2 Old is 0.5 in it, but 0.25 here"),
    (Holds(items(), np.float64(0.5)), Holds(items(), 1.5), r"value of stage 2 Holds is 0\.5 in it, but 1\.5 here"),
    (
        Two(FIRST, SECOND),
        Two(FIRST, SECOND.changed(datapipe=FIRST)),
        "datapipe of stage 3 MiniBatchTransformer is stage 1 in it, but stage 2 here",
    ),
]


def test_the_state_of_another_pipeline_is_refused() -> None:
    def load(first: gf.Datapipe, second: gf.Datapipe) -> Callable[[], object]:
        return lambda: resume(first, second)

    words = "state_dict comes from another pipeline: .*"
    check_refused((load(first, second), ValueError, words + message) for first, second, message in OTHERS)


STORE = gf.BasicFeatureStore({("node", None, "feat"): gf.TorchBasedFeature(torch.zeros(4, 1))})
LARGER = gf.BasicFeatureStore(
    {("node", None, name): gf.TorchBasedFeature(torch.zeros(4, 1)) for name in ("feat", "more")}
)


ALIKE: list[tuple[gf.Datapipe, gf.Datapipe]] = [
    (items(seed=1), items(seed=2)),
    (items(), items().buffer(3).prefetch(2).copy_to("cpu")),
    (items().copy_to("cpu").transform(same), items().transform(same)),
    (
        items().sample_neighbor(GRAPH, [2], overlap_fetch=True),
        gf.NeighborSampler(items(), gf.from_coo(EDGES, num_nodes=4), torch.tensor([2])),  # type: ignore[arg-type]
    ),
    (items().fetch_feature(STORE, ["feat"]), items().fetch_feature(LARGER, ["feat"], overlap_fetch=False)),
    (items().transform(lambda batch: batch), items().transform(lambda batch: batch)),
    (items().transform(Counter(3)), items().transform(Counter(4))),
    (Limits(items(), {"a": 1, "b": 2}, frozenset("xyz")), Limits(items(), {"b": 2, "a": 1}, frozenset("zyx"))),
    (
        gf.IterableSource(gf.MiniBatch() for _ in range(3)),
        gf.IterableSource([gf.MiniBatch()]),
    ),
    (
        gf.DistributedItemSampler(gf.ItemSet(8, names="seeds"), 2, rank=0, world_size=2),
        gf.DistributedItemSampler(gf.ItemSet(8, names="seeds"), 2, rank=1, world_size=4),
    ),
    (Holds(items(), np.float64(0.5)), Holds(items(), 0.5)),
]


def test_what_changes_no_mini_batch_is_not_compared() -> None:
    for first, second in ALIKE:
        resume(first, second)
    pipe = Holds(items(), 1)
    next(iter(pipe.with_seed(0)))  # changes its own state
    resume(pipe, Holds(items(), 1))


def test_a_state_without_a_fingerprint_is_taken_as_it_is() -> None:
    loader = gf.DataLoader(items(), num_workers=0)
    loader.load_state_dict({"seed": 3, "epoch": 2, "index": 1})
    assert [batch.seeds.tolist() for batch in loader] == [[2, 3]]


@dataclass(frozen=True, slots=True)
class Slotted:
    by: int

    def __call__(self, batch: gf.MiniBatch) -> gf.MiniBatch:
        return batch


def test_any_value_that_a_stage_is_given_has_a_text() -> None:
    sparse, nowhere = torch.eye(2).to_sparse(), torch.empty(2, device="meta")
    for value in (Slotted(2), sparse, nowhere, np.array([object()], dtype=object), {len, max}, np.float64(0.5)):
        resume(Holds(items(), value), Holds(items(), value))
        assert "0x" not in str(take_fingerprint(Holds(items(), value)))
