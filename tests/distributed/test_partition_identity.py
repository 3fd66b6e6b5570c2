import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import PartBook, Partitioner, assign_nodes, cut_graph, open_part, write_partition
from graphfeed.distributed.partition_identity import SAMPLES, identify, spread
from tests.distributed import graphs

BOOK = PartBook.from_assignment(torch.arange(100) % 2)
FEATURES = {gf.storage.FeatureKey("node", None, "x"): gf.TorchBasedFeature(torch.zeros(100, 3))}


def changed(**fields: Any) -> gf.FusedCSCSamplingGraph:
    return gf.FusedCSCSamplingGraph(**{**graphs.plain().fields(), **fields})


def test_an_identity_is_that_of_the_graph_the_assignment_the_features_and_the_time() -> None:
    graph = graphs.plain()
    weights = {"weight": graph.edge_attribute("weight") + 1}
    identities = [
        identify(graph, BOOK),
        identify(changed(indices=(graph.indices + 1) % 100), BOOK),
        identify(changed(edge_attributes={**graph.edge_attributes, **weights}), BOOK),
        identify(changed(edge_attributes={}), BOOK),
        identify(graph, PartBook.from_bounds([0, 50, 100])),
        identify(graph, BOOK, FEATURES),
        identify(graph, BOOK, {key: gf.TorchBasedFeature(torch.ones(100, 3)) for key in FEATURES}),
        identify(graph, BOOK, written=2),
        identify(graphs.typed(), PartBook.from_bounds([0, graphs.typed().total_num_nodes])),
    ]
    assert len(set(identities)) == len(identities)
    assert identify(graphs.plain(), BOOK, FEATURES) == identities[5]
    assert {cut_graph(graph, BOOK, part).identity for part in range(2)} == {identities[0]}


@pytest.mark.parametrize("count", [0, 1, 2, SAMPLES, SAMPLES + 1, 10**9])
def test_samples_reach_from_the_first_row_to_the_last(count: int) -> None:
    positions = spread(count)
    assert len(positions) == min(count, SAMPLES)
    assert count == 0 or (int(positions[0]), int(positions[-1])) == (0, count - 1 if count > 1 else 0)
    assert len(set(positions.tolist())) == len(positions)


def write(root: Path, layout: str, graph: gf.FusedCSCSamplingGraph) -> Path:
    parts = assign_nodes(graphs.plain(), 2, "hash")
    if layout == "own":
        return write_partition(root, graph, parts, 2)
    Partitioner(graph, 2, root, method=parts).generate_partition()
    return root


@pytest.mark.parametrize("layout", ["own", "pyg"])
def test_a_part_of_another_graph_is_refused_and_one_without_identity_is_warned_of(tmp_path: Path, layout: str) -> None:
    root = write(tmp_path / "own", layout, graphs.plain())
    other = write(tmp_path / "other", layout, changed(indices=(graphs.plain().indices + 1) % 100))
    assert open_part(root, 0).graph.identity == open_part(root, 1).graph.identity != open_part(other, 0).graph.identity
    shutil.rmtree(root / "part_1")
    shutil.copytree(other / "part_1", root / "part_1")
    with pytest.raises(ValueError, match="copy part 1 and the files beside it from the same partition"):
        open_part(root, 1)
    path = root / ("partition.json" if layout == "own" else "META.json")
    content = json.loads(path.read_text())
    del content["identity"]
    path.write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"is a part of the partition \w+, but the files beside it are of one of an ear"
    ):
        open_part(root, 0)
    (root / "part_0" / "identity.txt").unlink()
    with pytest.warns(UserWarning, match="has no identity, so it is not noticed"):
        assert open_part(root, 0).graph.identity == ""
