import xml.etree.ElementTree as ElementTree

import pytest

from graphfeed.distributed.partition_picture import BAR, draw_report
from graphfeed.distributed.partition_report import PartitionReport

SVG = "{http://www.w3.org/2000/svg}"


def bars(picture: str, kind: str) -> list[float]:
    """Return how long the bars of a kind are."""
    shapes = ElementTree.fromstring(picture).iter(f"{SVG}rect")
    with_counts = (shape for shape in shapes if shape.find(f"{SVG}title") is not None)
    return [float(shape.attrib["width"]) for shape in with_counts if shape.get("class") == kind]


def test_bars_are_as_long_as_what_they_stand_for() -> None:
    picture = draw_report(PartitionReport((300, 100), (500, 1000), (100, 0), (100, 200), {}))
    assert bars(picture, "nodes") == [BAR * 0.75, BAR * 0.25]
    assert bars(picture, "halo") == [BAR * 0.25, BAR * 0.5]
    assert bars(picture, "edges") == [BAR * 0.4, BAR]
    assert bars(picture, "cut") == pytest.approx([BAR * 0.1, 0])


def test_it_says_the_sums() -> None:
    picture = draw_report(PartitionReport((300, 100), (5, 5), (1, 0), (4, 4), {}))
    text = " ".join(ElementTree.fromstring(picture).itertext())
    assert "400 nodes and 10 edges in 2 parts" in text
    assert "10.0% of the edges are cut; 0.02 halo nodes per node" in text
    assert "nodes 1.50, in-edges 1.00" in text


def test_empty_parts_are_drawn() -> None:
    assert bars(draw_report(PartitionReport((0, 0), (0, 0), (0, 0), (0, 0), {})), "nodes") == [0, 0]
