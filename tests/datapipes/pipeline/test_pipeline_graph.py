"""A pipeline as text, and as a graph of its stages."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline.description import describe, describe_stage
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
    (describe, "describe"),
    (torch.nn.Identity(), "Identity"),
    ({"user": ["feat"]}, "{'user': ['feat']}"),
    ("x" * 200, "'" + "x" * 96 + "..."),
    (None, "None"),
]


def test_values_take_few_words() -> None:
    assert [describe(value) for value, _ in TEXTS] == [text for _, text in TEXTS]


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
    """Reads from two."""

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
