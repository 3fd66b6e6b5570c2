"""Each format of graph files is known by how its files begin."""

from pathlib import Path

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.files import formats
from graphfeed.storage.graph.files.formats import FORMATS, GraphFormat, format_of, verify_graph
from tests.storage.graph.test_fused_csc_sampling_graph import make_graph

BY_GRAPHBOLT = Path(__file__).parent / "graphbolt" / "typed.pt"


def test_a_file_has_the_format_that_it_begins_as(tmp_path: Path) -> None:
    make_graph().save(tmp_path / "graph")
    assert [format_of(path).name for path in (tmp_path / "graph", BY_GRAPHBOLT)] == ["graphfeed", "torch.save"]


def test_an_entry_is_all_that_a_new_format_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = GraphFormat("mine", (b"mine",), lambda path: make_graph(w=torch.arange(9)).fields(), lambda path: path.name)
    monkeypatch.setattr(formats, "FORMATS", (*FORMATS, mine))
    (tmp_path / "graph").write_bytes(b"mine")
    assert gf.load_graph(tmp_path / "graph").edge_attribute("w").tolist() == list(range(9))
    assert verify_graph(tmp_path / "graph") == "graph"


def test_a_format_without_checksums_is_named() -> None:
    with pytest.raises(ValueError, match=r"typed.pt has no checksum, as files of torch.save don't"):
        verify_graph(BY_GRAPHBOLT)
