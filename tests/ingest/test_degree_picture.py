from pathlib import Path

import matplotlib.image
import numpy as np

from graphfeed.ingest.dataset_report import DatasetReport, EdgeReport
from graphfeed.ingest.degree_picture import draw_degrees, shares


def test_shares_are_those_of_nodes_with_as_many_edges_or_more() -> None:
    degrees, share = shares(np.array([0, 2, 2, 5]))
    assert degrees.tolist() == [2, 5]
    assert share.tolist() == [0.75, 0.25]
    assert [part.tolist() for part in shares(np.zeros(0, dtype=np.int64))] == [[], []]


def test_each_edge_type_is_drawn_in_a_colour_of_its_own(tmp_path: Path) -> None:
    degrees = np.arange(1, 100)
    edges = {kind: EdgeReport(4950, degrees * factor, 1, 0, 0) for kind, factor in (("a:r:a", 1), ("a:q:a", 9))}
    draw_degrees(DatasetReport("some", {}, edges, {}, [], None), tmp_path / "picture.png")
    picture = (matplotlib.image.imread(tmp_path / "picture.png")[..., :3] * 255).astype(int)
    colours = {tuple(colour) for colour in picture.reshape(-1, 3).tolist()}
    assert {(31, 119, 180), (255, 127, 14)} <= colours
