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


def test_what_is_no_pipeline_is_named() -> None:
    loader: Any = gf.DataLoader(gf.ItemSampler(gf.ItemSet(4, names="seeds"), 2), num_workers=0)
    with pytest.raises(TypeError, match="dp must be a pipeline of stages, but is a DataLoader; give it the last stage"):
        gf.to_graph(loader)
