"""A pipeline as a string and as a graph of its stages, and estimates of its mini-batches."""

import gc
import sys
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader.explain import estimate_all
from graphfeed.storage.memory import tensors_in
from tests.kinds import pipelines
from tests.kinds.stages import ByFields, Chained, make_items, make_join


def test_a_chain_is_read_from_its_source() -> None:
    graph = gf.from_coo(torch.tensor([[0], [1]]), 10)
    pipe = make_items().sample_neighbor(graph, [3, [2]]).copy_to("cpu")
    assert repr(pipe) == (
        "ItemSampler(item_set=ItemSet(10 items), batch_size=2) -> "
        "NeighborSampler(graph=FusedCSCSamplingGraph(num_nodes=10, num_edges=1), fanouts=[3, [2]]) -> "
        "CopyTo(device='cpu')"
    )


def test_a_join_shows_its_branches_and_values_take_few_words() -> None:
    large = {"tensor": torch.ones(3, 2), "none": torch.ones(1, device="meta"), "list": list(range(100)), "t": "x" * 200}
    text = repr(ByFields(make_items(), large["tensor"], again=large["none"]))  # type: ignore[arg-type]
    assert text.endswith("ByFields(by=float32[3, 2], again=float32[1])")
    text = repr(ByFields(make_items(), large["list"], again=large["t"]))  # type: ignore[arg-type]
    assert text.endswith("ByFields(by=list of 100, again='" + "x" * 96 + "...)")
    source = "ItemSampler(item_set=ItemSet(10 items), batch_size=2)"
    branches = f"[{source} -> ByFields(by=100), {source} -> ByMethod(transformer=ByMethod._work)]"
    assert repr(make_join()) == f"{branches} -> Join()"
    assert repr(Chained((make_items(), make_items()))) == f"[{source}, {source}] -> Chained()"


class Join(gf.Datapipe):
    """Reads from two stages."""

    left: gf.Datapipe
    right: gf.Datapipe

    def __iter__(self) -> Iterator[Any]:
        yield from zip(self.left, self.right, strict=True)


class MySampler(gf.ItemSampler):
    pass


def chain() -> gf.Datapipe:
    return MySampler(gf.ItemSet(4, names="seeds"), batch_size=2).transform()


def diamond() -> Join:
    source = chain()
    return Join(source.copy_to("cpu"), source.transform())


def test_as_text() -> None:
    assert str(gf.to_graph(diamond())).splitlines() == [
        "Join",
        "  CopyTo",
        "    MiniBatchTransformer",
        "      MySampler",
        "  MiniBatchTransformer",
        "    MiniBatchTransformer",
        "      MySampler",
    ]


def test_as_a_flowchart() -> None:
    graph = gf.to_graph(diamond())
    assert graph.mermaid().splitlines() == [
        "flowchart TD",
        '    s0["MySampler"]',
        '    s1["MiniBatchTransformer"]',
        '    s2["CopyTo"]',
        '    s3["MiniBatchTransformer"]',
        '    s4["Join"]',
        "    s0 --> s1",
        "    s1 --> s2",
        "    s1 --> s3",
        "    s2 --> s4",
        "    s3 --> s4",
    ]
    assert graph._repr_markdown_() == f"```mermaid\n{graph.mermaid()}\n```"


def test_with_fields() -> None:
    graph = gf.to_graph(chain(), debug=True)
    assert str(graph) == "MiniBatchTransformer()\n  MySampler(item_set=ItemSet(4 items), batch_size=2)"
    assert 's0["MySampler(item_set=ItemSet(4 items), batch_size=2)"]' in graph.mermaid()
    labels = gf.to_graph(pipelines.heterogeneous(), debug=True).mermaid()
    assert all(line.count('"') in (0, 2) and line.count("<") == 0 for line in labels.splitlines())


def test_without_graphviz_there_is_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(ImportError, match=r"drawing a pipeline needs graphviz, .*: pip install graphviz, or use mer"):
        gf.to_graph(chain()).graphviz()


def test_with_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[str, ...]] = []

    class Digraph:
        def __init__(self, **options: Any) -> None:
            self.node = self.edge = lambda *words: drawn.append(words)

    monkeypatch.setitem(sys.modules, "graphviz", SimpleNamespace(Digraph=Digraph, escape=str))
    assert isinstance(gf.to_graph(chain()).graphviz(), Digraph)
    assert drawn == [("s0", "MySampler"), ("s1", "MiniBatchTransformer"), ("s0", "s1")]


def bytes_of(minibatch: Any) -> int:
    return sum({id(tensor): tensor.nbytes for tensor in tensors_in(minibatch)}.values())


def expected_bytes(pipe: gf.Datapipe) -> float:
    expected = estimate_all(pipe)[id(pipe)]
    assert expected is not None
    return expected.num_bytes


TEMPORAL = [build for build in pipelines.ALL if build.__name__.startswith("temporal_")]


def mean_bytes(pipe: gf.Datapipe) -> float:
    found = [bytes_of(minibatch) for minibatch in pipe][:-1]
    return sum(found) / len(found)


def test_it_is_close_where_edges_are_drawn_evenly_and_more_where_times_keep_edges_out() -> None:
    for build in pipelines.ALL:
        if build is not pipelines.joined:
            pipe = build()
            low, high = (1.0, 3.0) if build in TEMPORAL else (0.8, 1.6)
            assert low < expected_bytes(pipe) / mean_bytes(pipe) < high, build


def test_behind_a_join_and_a_function_of_the_user_s_nothing_is_known() -> None:
    joined = pipelines.joined()
    assert estimate_all(joined)[id(joined)] is None
    mine = pipelines.homogeneous().transform(lambda minibatch: minibatch).copy_to("cpu")
    assert estimate_all(mine)[id(mine)] is None
    assert expected_bytes(pipelines.homogeneous().transform().copy_to("cpu")) == expected_bytes(pipelines.homogeneous())


class MyFeature(gf.TorchBasedFeature):
    @property
    def dtype(self) -> Any:
        return None


def test_a_feature_of_unknown_dtype_is_not_guessed() -> None:
    store = gf.BasicFeatureStore({("node", None, "feat"): MyFeature(torch.ones(9, 3))})
    pipe = gf.ItemSampler(gf.ItemSet(9, names="seeds"), batch_size=3).fetch_feature(store, ["feat"])
    assert estimate_all(pipe)[id(pipe)] is None


@pytest.mark.parametrize("kind", [None, "a:r:a"])
def test_features_of_seeds_that_are_edges_are_counted_once_whatever_the_negatives(kind: str | None) -> None:
    items = gf.ItemSet((torch.zeros(6, 2, dtype=torch.int64), torch.arange(6)), names=("seeds", "seed_edge_ids"))
    pipe = gf.ItemSampler(items if kind is None else gf.HeteroItemSet({kind: items}), batch_size=3)
    store = gf.BasicFeatureStore({("edge", kind, "x"): gf.TorchBasedFeature(torch.ones(6, 8))})
    pipe = pipe.sample_uniform_negative(
        gf.from_coo({kind: ([0], [1])} if kind else ([0], [1]), {"a": 2} if kind else 2), 5
    )
    fetched = pipe.fetch_feature(store, seed_edge_feature_keys=["x"] if kind is None else {kind: ["x"]})
    assert expected_bytes(fetched) - expected_bytes(pipe) == 3 * 8 * 4
    assert [bytes_of(own) for own in fetched] == [expected_bytes(fetched)] * 2


def test_types_that_the_mini_batch_has_not_got_are_not_guessed() -> None:
    store = gf.BasicFeatureStore({("node", "user", "feat"): gf.TorchBasedFeature(torch.ones(9, 3))})
    items = gf.ItemSampler(gf.ItemSet(9, names="seeds"), batch_size=3)
    graph = gf.from_coo({"user:likes:user": torch.tensor([[0], [1]])}, {"user": 9})
    for pipe in (items.fetch_feature(store, {"user": ["feat"]}), items.sample_neighbor(graph, [1])):
        assert estimate_all(pipe)[id(pipe)] is None


@pytest.mark.parametrize("num_workers", [None, 0, 2])
def test_a_graph_is_freed_with_its_pipeline_and_loader_without_the_garbage_collector(num_workers: int | None) -> None:
    gc.disable()
    try:
        graph = gf.from_coo(torch.tensor([[0, 1], [1, 2]]), 10)
        freed = weakref.ref(graph)
        pipe = make_items().sample_neighbor(graph, [2]).transform()
        gf.traverse(pipe)
        if num_workers is not None:
            with gf.DataLoader(pipe, num_workers=num_workers, worker="thread") as loader:
                assert len(list(loader)) == 5
            del loader
        del graph, pipe
        assert freed() is None
    finally:
        gc.enable()
