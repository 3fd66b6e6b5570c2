"""A pipeline as a string and as a graph of its stages, and estimates of its mini-batches."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline.description import describe_stage, value_in_line
from graphfeed.datapipes.pipeline.size_estimate import BatchSizeEstimate, choose, distinct, measure_items
from graphfeed.loader.explain import estimate_all
from graphfeed.storage.memory.tensor_tree import tensors_in
from tests import pipelines
from tests.datapipes.stages import ByFields, ByMethod, Chained, Odd, make_items, make_join

TEXTS: list[tuple[Any, str]] = [
    (torch.ones(3, 2), "float32[3, 2]"),
    (torch.tensor(5), "5"),
    (torch.tensor([7]), "[7]"),
    (gf.ItemSet(100, names="seeds"), "ItemSet(100 items)"),
    (gf.HeteroItemSet({"a": gf.ItemSet(2), "b": gf.ItemSet(3)}), "HeteroItemSet(5 items)"),
    (gf.BasicFeatureStore({}), "BasicFeatureStore(0 features)"),
    ([10, 5], "[10, 5]"),
    ((10, [2, -1], torch.tensor([3, 4])), "[10, [2, -1], int64[2]]"),
    (list(range(100)), "list of 100"),
    ([gf.MiniBatch(seeds=torch.ones(1))], "[MiniBatch(...)]"),
    (value_in_line, "value_in_line"),
    (torch.nn.Identity(), "Identity"),
    ({"user": ["feat"]}, "{'user': ['feat']}"),
    ("x" * 200, "'" + "x" * 96 + "..."),
    (None, "None"),
]


def test_values_take_few_words() -> None:
    assert [value_in_line(value) for value, _ in TEXTS] == [text for _, text in TEXTS]


def test_a_stage_shows_what_is_not_its_default() -> None:
    assert describe_stage(make_items()) == "ItemSampler(item_set=ItemSet(10 items), batch_size=2)"
    assert describe_stage(make_items(shuffle=True)).endswith("batch_size=2, shuffle=True)")
    assert describe_stage(ByFields(make_items(), 5)) == "ByFields(by=5)"
    assert describe_stage(make_items().transform()) == "MiniBatchTransformer()"
    assert describe_stage(ByMethod(make_items(), 5)) == "ByMethod(transformer=ByMethod._work)"


def test_a_stage_without_fields_shows_its_name() -> None:
    assert describe_stage(Odd(make_items())) == "Odd()"


def test_a_chain_is_read_from_its_source() -> None:
    graph = gf.from_coo(torch.tensor([[0], [1]]), 10)
    pipe = make_items().sample_neighbor(graph, [3, [2]]).copy_to("cpu")
    assert repr(pipe) == (
        "ItemSampler(item_set=ItemSet(10 items), batch_size=2) -> "
        "NeighborSampler(graph=FusedCSCSamplingGraph(num_nodes=10, num_edges=1), fanouts=[3, [2]]) -> "
        "CopyTo(device='cpu')"
    )


def test_a_join_shows_its_branches() -> None:
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


def test_a_mini_batch_is_counted_tensor_by_tensor_once() -> None:
    seeds = torch.arange(5)
    assert measure_items(gf.MiniBatch(seeds=seeds, labels=seeds)) == BatchSizeEstimate(40, {None: 5}, 5, {None: 5})
    edges = {"a:to:b": torch.zeros(3, 2, dtype=torch.int32)}
    assert measure_items(gf.MiniBatch(seeds=edges)) == BatchSizeEstimate(
        24, {"a": 3, "b": 3}, 3, {"a": 3, "b": 3}, id_bytes=4
    )
    assert measure_items(gf.MiniBatch()) is None
    assert measure_items(torch.ones(3)) is None


def test_an_epoch_of_no_mini_batches_holds_nothing_known() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(3, names="seeds"), batch_size=4, drop_last=True)
    assert pipe.estimate_size(None) is None


def test_a_fan_out_limits_each_type_or_all_together() -> None:
    degrees: dict[str | None, float] = {"a:to:b": 6.0, "c:to:b": 2.0, "a:to:c": 1.0}
    assert choose(degrees, [4], replace_edges=False) == {"a:to:b": 3.0, "c:to:b": 1.0, "a:to:c": 1.0}
    assert choose(degrees, [4, 4, 0], replace_edges=False) == {"a:to:b": 4.0, "c:to:b": 2.0, "a:to:c": 0.0}
    assert choose(degrees, [-1], replace_edges=False) == degrees
    assert choose({None: 0.5}, [4], replace_edges=True) == {None: 4.0}
    assert choose({None: 0.0}, [4], replace_edges=True) == {None: 0.0}


def test_there_are_no_more_nodes_than_the_graph_has() -> None:
    assert distinct(0, 10, 1_000_000) == pytest.approx(10, rel=1e-4)
    assert distinct(50, 1e9, 100) == pytest.approx(100)
    assert distinct(150, 5, 100) == 150  # seeds may repeat
    assert distinct(0, 0, 0) == 0
