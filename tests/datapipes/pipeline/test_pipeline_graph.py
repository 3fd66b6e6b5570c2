import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import graphfeed as gf
from tests import pipelines


class Join(gf.Datapipe):
    """Reads from two."""

    left: gf.Datapipe
    right: gf.Datapipe

    def __iter__(self) -> Iterator[Any]:
        yield from zip(self.left, self.right, strict=True)


class MySampler(gf.ItemSampler):
    pass


def chain() -> gf.MiniBatchTransformer:
    return MySampler(gf.ItemSet(4, names="seeds"), batch_size=2).transform()


def diamond() -> Join:
    source = chain()
    return Join(source.copy_to("cpu"), source.transform())


def names(stages: Any) -> list[str]:
    return [type(stage).__name__ for stage in stages]


def test_the_graph_nests_stages_by_id() -> None:
    pipe = chain()
    graph = gf.traverse_dps(pipe)
    assert graph == {id(pipe): (pipe, {id(pipe.datapipe): (pipe.datapipe, {})})}


def test_stages_are_found_by_class_with_its_subclasses_each_once() -> None:
    graph = gf.traverse_dps(diamond())
    assert names(gf.find_dps(graph, gf.ItemSampler)) == ["MySampler"]
    assert names(gf.find_dps(graph, gf.Transform)) == ["MiniBatchTransformer", "CopyTo", "MiniBatchTransformer"]
    assert gf.find_dps(graph, gf.NeighborSampler) == []


def test_replacing_gives_another_graph_and_leaves_the_pipeline() -> None:
    pipe = diamond()
    (old,) = gf.find(pipe, gf.ItemSampler)
    new = gf.ItemSampler(gf.ItemSet(6, names="seeds"), batch_size=2)
    graph = gf.replace_dp(gf.traverse_dps(pipe), old, new)
    ((last, _),) = graph.values()
    assert gf.find_dps(graph, gf.ItemSampler) == [new]
    assert len(list(last)) == 3
    assert gf.find(pipe, gf.ItemSampler) == [old]
    with pytest.raises(ValueError, match="MySampler is no stage of this pipeline"):
        gf.replace_dp(graph, old, new)


def test_neighbours_are_listed_once_a_stage() -> None:
    pipe = diamond()
    table = gf.datapipe_graph_to_adjlist(gf.traverse_dps(pipe))
    assert names(stage for stage, _ in table.values()) == [
        "Join",
        "MiniBatchTransformer",
        "CopyTo",
        "MiniBatchTransformer",
        "MySampler",
    ]
    assert all(sources == [id(source) for source in stage.inputs] for stage, sources in table.values())
    assert table[id(pipe)] == (pipe, [id(pipe.left), id(pipe.right)])


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
    with pytest.raises(ImportError, match=r"drawing a pipeline needs graphviz, .*: pip install graphviz, or take mer"):
        gf.to_graph(chain()).graphviz()


def test_with_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[str, ...]] = []

    class Digraph:
        def __init__(self, **options: Any) -> None:
            self.node = self.edge = lambda *words: drawn.append(words)

    monkeypatch.setitem(sys.modules, "graphviz", SimpleNamespace(Digraph=Digraph, escape=str))
    assert isinstance(gf.to_graph(chain()).graphviz(), Digraph)
    assert drawn == [("s0", "MySampler"), ("s1", "MiniBatchTransformer"), ("s0", "s1")]
