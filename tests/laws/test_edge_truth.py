"""Every sampled edge is an edge of the graph with that id and endpoints; features and labels belong to their ids.

The edge lists from which the graph was built are the truth. An untyped graph is treated as one with a single type.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphfeed as gf
from tests.kinds.digests import assert_same
from tests.kinds.tensors import layers_of

ONLY = "_"
ONLY_EDGES = "_:_:_"
Load = Callable[[gf.Datapipe], Iterable[gf.MiniBatch]]
"""Runs a pipeline on some device, and returns its mini-batches on the CPU."""


def by_type(value: Any, name: str) -> dict[str, Any]:
    """Return a dict by type, also for a graph of one type."""
    return value if isinstance(value, dict) else {name: value}


@dataclass
class Truth:
    """A graph as given by a user."""

    edges: dict[str, tuple[torch.Tensor, torch.Tensor]]
    """Sources and destinations of each edge type, each numbered inside its node type."""
    num_nodes: dict[str, int]
    weights: dict[str, torch.Tensor] | None = None
    """The weight of each edge."""

    @property
    def kinds(self) -> list[str]:
        return list(self.num_nodes)

    def graph(self) -> gf.FusedCSCSamplingGraph:
        attributes = None if self.weights is None else {"w": self.weights}
        if self.kinds != [ONLY]:
            return gf.from_coo(self.edges, self.num_nodes, edge_attributes=attributes)
        own = None if self.weights is None else {"w": self.weights[ONLY_EDGES]}
        return gf.from_coo(self.edges[ONLY_EDGES], self.num_nodes[ONLY], edge_attributes=own)

    def features(self) -> gf.BasicFeatureStore:
        """Return features that contain the number of the type, and the id."""
        store = gf.BasicFeatureStore({})
        for domain, counts in (("node", self.num_nodes), ("edge", {name: len(e[0]) for name, e in self.edges.items()})):
            for number, (name, count) in enumerate(counts.items()):
                rows = torch.stack([torch.full((count,), number), torch.arange(count)], dim=1)
                store[domain, None if self.kinds == [ONLY] else name, "code"] = gf.TorchBasedFeature(rows)
        return store

    def names(self, kinds: Sequence[str]) -> Any:
        """Return the keys of features in the form that the fetcher expects."""
        return ["code"] if self.kinds == [ONLY] else {name: ["code"] for name in kinds}

    def eligible(self, edge_type: str) -> torch.Tensor:
        """Return how many edges of a type may be drawn at each node."""
        ends = self.edges[edge_type][1]
        if self.weights is not None:
            ends = ends[self.weights[edge_type] > 0]
        return torch.bincount(ends.long(), minlength=self.num_nodes[edge_type.split(":")[2]])


def label_of(number: int, ids: torch.Tensor) -> torch.Tensor:
    return ids * 7 + number


def make_pipe(truth: Truth, seeds: dict[str, torch.Tensor], fanouts: Any, replace: bool = False) -> gf.Datapipe:
    """Return a pipeline with sampling and all features."""
    sets = {
        name: gf.ItemSet((ids, label_of(truth.kinds.index(name), ids)), names=("seeds", "labels"))
        for name, ids in seeds.items()
    }
    items: Any = sets[ONLY] if truth.kinds == [ONLY] else gf.HeteroItemSet(sets)
    pipe: gf.Datapipe = gf.ItemSampler(items, batch_size=13, shuffle=True, seed=4)
    weights = None if truth.weights is None else "w"
    pipe = pipe.sample_neighbor(truth.graph(), fanouts, replace, weights)
    return pipe.fetch_feature(truth.features(), truth.names(truth.kinds), truth.names(list(truth.edges)))


def check_edges(truth: Truth, layer: gf.SampledSubgraph) -> None:
    """Each edge has the id of an edge that joins those nodes."""
    rows, columns = by_type(layer.original_row_node_ids, ONLY), by_type(layer.original_column_node_ids, ONLY)
    cscs, ids = by_type(layer.sampled_csc, ONLY_EDGES), by_type(layer.original_edge_ids, ONLY_EDGES)
    assert set(cscs) == set(ids) == set(truth.edges)
    assert set(rows) == set(columns) == set(truth.num_nodes)
    for edge_type, (sources, destinations) in truth.edges.items():
        source, _, destination = edge_type.split(":")
        csc, own = cscs[edge_type], ids[edge_type].long()
        assert len(csc.indptr) == len(columns[destination]) + 1
        ends = torch.repeat_interleave(torch.arange(len(columns[destination])), csc.indptr.diff())
        assert torch.equal(rows[source][csc.indices.long()].long(), sources[own].long())
        assert torch.equal(columns[destination][ends].long(), destinations[own].long())


def check_compaction(layer: gf.SampledSubgraph) -> None:
    """Rows are the columns unchanged, then new nodes in order of first appearance; edges refer to first positions."""
    rows, columns = by_type(layer.original_row_node_ids, ONLY), by_type(layer.original_column_node_ids, ONLY)
    expected = {kind: ids.tolist() for kind, ids in columns.items()}
    known = {kind: set(ids) for kind, ids in expected.items()}
    for edge_type, csc in by_type(layer.sampled_csc, ONLY_EDGES).items():
        kind = edge_type.split(":")[0]
        for node in rows[kind][csc.indices.long()].tolist():
            if node not in known[kind]:
                known[kind].add(node)
                expected[kind].append(node)
    assert {kind: ids.tolist() for kind, ids in rows.items()} == expected
    for edge_type, csc in by_type(layer.sampled_csc, ONLY_EDGES).items():
        ids = expected[edge_type.split(":")[0]]
        first = {node: place for place, node in reversed(list(enumerate(ids)))}
        assert all(first[ids[place]] == place for place in csc.indices.tolist())


def check_counts(truth: Truth, layer: gf.SampledSubgraph, fanout: Any, replace: bool) -> None:
    """Each column has as many edges as its fan-out and its neighbours allow, and without replacement no edge twice."""
    columns = by_type(layer.original_column_node_ids, ONLY)
    cscs, ids = by_type(layer.sampled_csc, ONLY_EDGES), by_type(layer.original_edge_ids, ONLY_EDGES)
    fanouts = fanout if isinstance(fanout, list) else [fanout] * len(truth.edges)
    for kind, seeds in columns.items():
        into = [place for place, edge_type in enumerate(truth.edges) if edge_type.endswith(f":{kind}")]
        together = [into] if not isinstance(fanout, list) else [[place] for place in into]
        for group in together:
            types = [list(truth.edges)[place] for place in group]
            if not types:
                continue
            most = fanouts[group[0]]
            there = torch.stack([truth.eligible(edge_type)[seeds.long()] for edge_type in types]).sum(0)
            found = torch.stack([cscs[edge_type].indptr.diff() for edge_type in types]).sum(0)
            wanted = there if most < 0 else torch.where(there > 0, most, 0) if replace else there.clamp(max=most)
            assert torch.equal(found.long(), wanted)
    for edge_type, csc in cscs.items():
        for low, high in zip(csc.indptr[:-1].tolist(), csc.indptr[1:].tolist(), strict=True):
            own = ids[edge_type][low:high].tolist()
            assert replace or len(set(own)) == len(own)
            if truth.weights is not None:
                assert (truth.weights[edge_type][own] > 0).all()


def check_features(truth: Truth, batch: gf.MiniBatch) -> None:
    """Features that encode type and id arrive unchanged, for input nodes and for each layer's edges."""
    assert len(batch.edge_features) == batch.num_layers()
    parts = [(batch.node_features, by_type(batch.input_nodes, ONLY), truth.kinds)]
    for layer, features in enumerate(batch.edge_features):
        parts += [(features, by_type(batch.edge_ids(layer), ONLY_EDGES), list(truth.edges))]
    for features, ids, kinds in parts:
        assert len(features) == len(kinds)
        for number, kind in enumerate(kinds):
            code = features["code" if truth.kinds == [ONLY] else (kind, "code")]
            own = ids[kind].long()
            assert torch.equal(code, torch.stack([torch.full_like(own, number), own], dim=1))


def check_batch(truth: Truth, batch: gf.MiniBatch, fanouts: Any, replace: bool = False) -> None:
    """Check all fields of a mini-batch."""
    layers = batch.sampled_subgraphs
    assert layers is not None
    assert len(layers) == len(fanouts)
    assert_same(batch.input_nodes, layers[0].original_row_node_ids)
    for outer, inner in pairwise(layers):
        assert_same(outer.original_column_node_ids, inner.original_row_node_ids)
    for layer, fanout in zip(layers, fanouts, strict=True):
        check_edges(truth, layer)
        check_compaction(layer)
        check_counts(truth, layer, fanout, replace)
    check_features(truth, batch)


def check_epoch(
    truth: Truth, seeds: dict[str, torch.Tensor], fanouts: Any, replace: bool = False, load: Load = iter
) -> None:
    """Check an epoch, and that it has each seed once, with its label."""
    seen: dict[str, list[int]] = {kind: [] for kind in truth.kinds}
    for batch in load(make_pipe(truth, seeds, fanouts, replace)):
        check_batch(truth, batch, fanouts, replace)
        columns = by_type(layers_of(batch)[-1].original_column_node_ids, ONLY)
        assert list(columns) == truth.kinds
        own = by_type(batch.seeds, ONLY)
        for kind in truth.kinds:
            assert columns[kind].tolist() == own.get(kind, torch.tensor([])).tolist()
        for kind, ids in own.items():
            assert_same(by_type(batch.labels, ONLY)[kind], label_of(truth.kinds.index(kind), ids))
            seen[kind] += ids.tolist()
    assert {kind: sorted(ids) for kind, ids in seen.items() if ids} == {
        kind: sorted(ids.tolist()) for kind, ids in seeds.items() if len(ids)
    }


def random_ends(generator: np.random.Generator, counts: Sequence[int], size: int) -> Any:
    """Return edges, with duplicates and loops; some nodes get many."""
    if min(counts) == 0:
        return (torch.empty(0, dtype=torch.int64),) * 2
    return tuple(torch.from_numpy((count * generator.random(size) ** 2).astype(np.int64)) for count in counts)


@st.composite
def homogeneous(draw: st.DrawFn) -> Truth:
    generator = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    count = draw(st.integers(1, 60))
    edges = random_ends(generator, (count, count), draw(st.integers(0, 400)))
    weights = {ONLY_EDGES: torch.from_numpy(generator.random(len(edges[0])) - 0.3).clamp(min=0)}
    return Truth({ONLY_EDGES: edges}, {ONLY: count}, weights if draw(st.booleans()) else None)


@st.composite
def heterogeneous(draw: st.DrawFn) -> Truth:
    generator = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    kinds = ["user", "item", "shop"]
    counts = {kind: draw(st.integers(1 if kind == "user" else 0, 30)) for kind in kinds}
    pairs = draw(st.lists(st.tuples(st.sampled_from(kinds), st.sampled_from(kinds)), min_size=1, max_size=6))
    edges = {
        f"{source}:r{number}:{destination}": random_ends(
            generator, (counts[source], counts[destination]), draw(st.integers(0, 120))
        )
        for number, (source, destination) in enumerate(pairs)
    }
    weights = {kind: torch.from_numpy(generator.random(len(ends[0])) > 0.3) for kind, ends in edges.items()}
    return Truth(edges, counts, weights if draw(st.booleans()) else None)


def draw_seeds(data: st.DataObject, truth: Truth) -> dict[str, torch.Tensor]:
    """Return some nodes, in any order, possibly with duplicates."""
    seeds = {}
    for kind, count in truth.num_nodes.items():
        ids = data.draw(st.lists(st.integers(0, count - 1), max_size=30)) if count else []
        seeds[kind] = torch.tensor(ids or ([0] if kind in (ONLY, "user") else []), dtype=torch.int64)
    return seeds


@given(homogeneous(), st.lists(st.integers(-1, 8), min_size=1, max_size=3), st.booleans(), st.data())
def test_random_graphs(truth: Truth, fanouts: list[int], replace: bool, data: st.DataObject) -> None:
    check_epoch(truth, draw_seeds(data, truth), fanouts, replace)


@given(heterogeneous(), st.booleans(), st.data())
def test_random_graphs_with_types(truth: Truth, replace: bool, data: st.DataObject) -> None:
    number = st.integers(-1, 8)
    size = len(truth.edges)
    layer = st.one_of(number, st.lists(number, min_size=size, max_size=size)) if size > 1 else number
    fanouts = data.draw(st.lists(layer, min_size=1, max_size=3))
    check_epoch(truth, draw_seeds(data, truth), fanouts, replace)


@given(heterogeneous(), st.data())
def test_edge_seeds_lead_to_their_ends(truth: Truth, data: st.DataObject) -> None:
    seeds = {kind: torch.stack(ends, dim=1)[:20] for kind, ends in truth.edges.items() if len(ends[0])}
    batch = gf.MiniBatch(seeds=seeds or {"user": torch.tensor([0])}, key=gf.Key(0, 0, 0))
    (result,) = gf.IterableSource([batch]).sample_neighbor(truth.graph(), [2])
    check_edges(truth, result.sampled_subgraphs[0])
    check_compaction(result.sampled_subgraphs[0])
    columns = result.sampled_subgraphs[0].original_column_node_ids
    for kind, pairs in seeds.items():
        for end, place in ((0, 0), (2, 1)):
            nodes = columns[kind.split(":")[end]]
            assert len(nodes.unique()) == len(nodes)
            assert torch.equal(nodes[result.compacted_seeds[kind][:, place]], pairs[:, place])


def check_links(truth: Truth, batch: gf.MiniBatch, ratio: int) -> None:
    """Seeds are edges and then their negatives, at the given rows; no layer has one of them."""
    layers, seeds = batch.sampled_subgraphs, by_type(batch.seeds, ONLY_EDGES)
    assert layers is not None
    rows, local = by_type(layers[-1].original_column_node_ids, ONLY), by_type(batch.compacted_seeds, ONLY_EDGES)
    for kind, pairs in seeds.items():
        source, _, destination = kind.split(":")
        assert_same(torch.stack([rows[source][local[kind][:, 0]], rows[destination][local[kind][:, 1]]], 1), pairs)
        positive = by_type(batch.labels, ONLY_EDGES)[kind] == 1
        known = {(int(one), int(other)) for one, other in zip(*truth.edges[kind], strict=True)}
        assert {(one, other) for one, other in pairs[positive].tolist()} <= known
        assert len(pairs) == (1 + ratio) * int(positive.sum())
        indexes = by_type(batch.indexes, ONLY_EDGES)[kind]
        assert_same(pairs[:, 0], pairs[positive][indexes, 0])
        for layer in layers:
            ids = by_type(layer.original_edge_ids, ONLY_EDGES)[kind]
            found = torch.stack([ends[ids] for ends in truth.edges[kind]], dim=1).tolist()
            assert not {tuple(pair) for pair in found} & {tuple(pair) for pair in pairs.tolist()}


def check_link_epoch(truth: Truth, ratio: int, load: Load = iter) -> None:
    """Check an epoch of edges and their negatives, which no layer has."""
    sets = {
        kind: gf.ItemSet(torch.stack(ends, dim=1)[:20], names="seeds")
        for kind, ends in truth.edges.items()
        if len(ends[0])
    }
    items: Any = sets.get(ONLY_EDGES, gf.HeteroItemSet(sets) if sets else None)
    graph = truth.graph()
    pipe: gf.Datapipe = gf.IterableSource([]) if items is None else gf.ItemSampler(items, batch_size=7, shuffle=True)
    pipe = pipe.sample_uniform_negative(graph, ratio).sample_neighbor(graph, [2, -1]).exclude_seed_edges()
    pipe = pipe.fetch_feature(truth.features(), truth.names(truth.kinds), truth.names(list(truth.edges)))
    for batch in load(pipe):
        check_links(truth, batch, ratio)
        check_features(truth, batch)
        for layer in layers_of(batch):
            check_edges(truth, layer)


@pytest.mark.slow
@settings(max_examples=max(settings().max_examples // 4, 20))  # each is an epoch, of which Python checks every edge
@given(st.one_of(homogeneous(), heterogeneous()), st.integers(1, 3))
def test_predicted_links_are_not_among_the_edges(truth: Truth, ratio: int) -> None:
    check_link_epoch(truth, ratio)


@given(heterogeneous())
def test_without_ids_of_its_own_an_edge_has_its_place_in_the_graph(truth: Truth) -> None:
    made = truth.graph()
    arrays = (made.csc_indptr, made.indices, made.node_type_offset, made.type_per_edge)
    graph = gf.fused_csc_sampling_graph(*arrays, made.node_type_to_id, made.edge_type_to_id)
    ends = gf.expand_indptr(made.csc_indptr, torch.int64)
    first = dict(zip(truth.kinds, made.node_type_offset.tolist(), strict=False))
    places = {kind: kind.split(":")[::2] for kind in truth.edges}
    edges = {kind: (made.indices - first[source], ends - first[end]) for kind, (source, end) in places.items()}
    (layer,) = graph.sample_hops({"user": torch.tensor([0])}, gf.SamplingRequest([torch.tensor([3])]), [1])
    check_edges(Truth(edges, truth.num_nodes), layer)


@given(
    heterogeneous(), st.sampled_from(["uniform", "latest", "labor"]), st.sampled_from(["seed", "edge"]), st.booleans()
)
def test_edges_sampled_in_time(truth: Truth, strategy: Any, hop_time: Any, by_type: bool) -> None:
    existed = {kind: torch.arange(len(ends[0])) * 7 % 20 for kind, ends in truth.edges.items()}
    graph = gf.from_coo(truth.edges, truth.num_nodes, edge_attributes={"time": existed})
    seeds, times = {"user": torch.tensor([0, 0])}, {"user": torch.tensor([15, 19])}
    fanouts = [torch.tensor([3]), torch.tensor([2] * len(truth.edges) if by_type else [4])]
    request = gf.SamplingRequest(fanouts, strategy=strategy, temporal=gf.TemporalQuery(None, "time", hop_time=hop_time))
    for layer in reversed(graph.sample_hops(seeds, request, [1, 2], seeds_timestamp=times)):
        check_edges(truth, layer)
        times = check_times(layer, existed, times, hop_time)


def check_times(layer: Any, existed: Any, times: Any, hop_time: str) -> Any:
    """Each edge is older than its column; return the times of the rows, which begin with the columns."""
    of_rows = {kind: torch.zeros(len(rows), dtype=torch.int64) for kind, rows in layer.original_row_node_ids.items()}
    for kind, columns in times.items():
        of_rows[kind][: len(columns)] = columns
    for edge_type, csc in layer.sampled_csc.items():
        source, _, destination = edge_type.split(":")
        of_edges = existed[edge_type][layer.original_edge_ids[edge_type]]
        of_columns = of_rows[destination][: len(csc.indptr) - 1].repeat_interleave(csc.indptr.diff())
        assert (of_edges < of_columns).all()
        of_rows[source][csc.indices] = of_edges if hop_time == "edge" else of_columns
    return of_rows


def load(folder: Path, name: str) -> dict[str, torch.Tensor]:
    with np.load(folder / name / f"{name}.npz", allow_pickle=False) as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays.files if arrays[key].dtype.kind in "biuf"}


def some(batches: Any) -> Iterator[Any]:
    """Yield every fifth mini-batch, because the checks are slow."""
    return (batch for place, batch in enumerate(batches) if place % 5 == 0)


@pytest.mark.parametrize("name", ["cora", "pubmed"])
@pytest.mark.parametrize("replace", [False, True])
def test_citations(shared_data: Path, name: str, replace: bool) -> None:
    arrays = load(shared_data, name)
    truth = Truth({ONLY_EDGES: (arrays["src"], arrays["dst"])}, {ONLY: int(arrays["num_nodes"])})
    items = gf.ItemSet((arrays["test_idx"], arrays["label"][arrays["test_idx"].long()]), names=("seeds", "labels"))
    pipe = gf.ItemSampler(items, batch_size=50, shuffle=True).sample_neighbor(truth.graph(), [10, -1], replace)
    with gf.DataLoader(pipe.fetch_feature(truth.features(), ["code"], ["code"]), num_workers=2, seed=0) as loader:
        for batch in some(loader):
            check_batch(truth, batch, [10, -1], replace)
            assert batch.input_nodes.dtype == torch.int32
            assert torch.equal(batch.labels, arrays["label"][batch.seeds.long()])


def test_wordnet(shared_data: Path) -> None:
    arrays = load(shared_data, "wordnet")
    edges = {}
    for name in (key.removesuffix("__src") for key in arrays if key.endswith("__src")):
        relation, source, destination = name.split("__")
        pair = arrays[f"{name}__src"].long(), arrays[f"{name}__dst"].long()
        edges[f"{source}:{relation}:{destination}"] = pair
        edges[f"{destination}:of_{relation}:{source}"] = pair[::-1]
    truth = Truth(edges, {kind: int(arrays[f"num_nodes_{kind}"]) for kind in ("synset", "word")})
    seeds = arrays["train_idx"][:10_000].long()
    synsets = gf.ItemSet((seeds, arrays["synset_label"][seeds]), names=("seeds", "labels"))
    fanouts: Any = [3, [2] * len(edges)]
    pipe = gf.ItemSampler(gf.HeteroItemSet({"synset": synsets}), batch_size=1000, shuffle=True)
    sampled = pipe.sample_neighbor(truth.graph(), fanouts)
    fetched = sampled.fetch_feature(truth.features(), truth.names(truth.kinds), truth.names(list(edges)))
    with gf.DataLoader(fetched, num_workers=2, seed=0) as loader:
        for batch in some(loader):
            check_batch(truth, batch, fanouts)
            assert torch.equal(batch.labels["synset"], arrays["synset_label"][batch.seeds["synset"]])
