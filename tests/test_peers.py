"""Comparison with other libraries: measured in separate processes, in turn, and as the README describes."""

import json
import subprocess
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import epoch, epoch_process, peer_process, peers
from benchmarks.scale import quick
from graphfeed.pyg.data.tables import import_pyg
from tests.pages import rows

ROOT = Path(__file__).resolve().parents[1]


def test_the_readme_says_of_peers_what_was_measured() -> None:
    """`make records ONLY=peers` and `ONLY=epoch` measure again."""
    readme, folder = (ROOT / "README.md").read_text(), ROOT / "docs" / "measured"
    record, epochs = (json.loads((folder / f"{name}.json").read_text()) for name in ("peers", "epoch"))
    measured: dict[str, list[str]] = {}
    for what in ("sample", "sample and fetch"):
        title = f"peers: products, fan-outs [5, 10, 15], {what}, CPU time of an edge; ratio to graphfeed"
        for row in (row for row in record["rows"] if row["table"] == title):
            own = f"1 ({row['median']:.0f} ns)" if row["what"] == "graphfeed" else f"{row['ratio']:.2g}"
            measured.setdefault(row["what"].partition(" (")[0], []).append(own)
    seconds: dict[str, float] = {}
    for row in (row for row in epochs["rows"] if "with a worker" in row["table"]):
        name = row["what"].partition(": ")[0].partition(" (")[0]
        seconds[name] = seconds.get(name, 0) + row["median"]
    for name, said in measured.items():
        said.append(f"{seconds[name]:.2g} s")
    measured["graphfeed"][-1] += f" (its NeighborLoader: {seconds['graphfeed.pyg']:.2g} s)"
    assert {name: said for name, *said in rows(ROOT / "README.md", "")} == measured
    assert f"load {record['machine']['load']} on two cores" in readme
    assert f"load {epochs['machine']['load']})" in readme


def test_peers_that_are_not_installed_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "start_peer", lambda library, *_: f"No module named {library!r}")
    printed = list(peers.report(quick(tmp_path, 2)))
    assert printed[:2] == [f"{name} is left out: No module named {name!r}\n" for name in peer_process.PEERS]
    assert [text.count("CPU time of an edge") for text in printed if "left out" not in text] == [1, 0] * 4


PEER = """
import json, sys
task = json.loads(sys.stdin.readline())
print(json.dumps({"name": "Other " + task["library"]}), flush=True)
for number, _ in enumerate(sys.stdin, 1):
    print(json.dumps([number, 10 * number]), flush=True)
"""


def test_a_peer_is_measured_in_its_own_process_and_by_the_edge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = peers.Task({"csc_indptr": torch.tensor([0, 1])}, torch.tensor([0]), 1, (1,))
    own = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: own([command[0], "-c", PEER], **options))
    with ExitStack() as stack:
        answer = peers.start_peer("GraphBolt", str(tmp_path), task, stack)
        assert not isinstance(answer, str)
        name, step = answer
        by_edge, whole = peers.measure({"graphfeed": lambda: (1.0, 20), name: step}, 2)
    assert name == "Other GraphBolt"
    assert [(row.what, row.times.median, row.ratio) for row in by_edge] == [
        ("graphfeed", 5e7, 1.0),
        (name, 1e8, 2.0),
    ]
    assert [row.times.values for row in whole] == [[1e3, 1e3], [3e3, 4e3]]


def test_a_peer_makes_the_task_that_is_written_or_says_what_is_missing(tmp_path: Path) -> None:
    task = peers.Task({"csc_indptr": torch.tensor([0, 1]), "types": {"a": 0}}, torch.tensor([0]), 1, (1,), kind="a")
    peers.write_task(tmp_path, task, {"a": torch.ones(1, 2)})
    with ExitStack() as stack:
        missing = peers.start_peer("PyG", str(tmp_path), replace(task, features={"a": torch.ones(1, 2)}), stack)
    assert missing == "the graph with types is compared with GraphBolt alone"


def test_all_libraries_train_the_same_net_with_what_they_load() -> None:
    """Full fan-outs make sampling deterministic; labels are the seeds here."""
    import_pyg("torch_geometric.loader", "tests")
    generator = torch.Generator().manual_seed(0)
    graph = {"csc_indptr": torch.arange(41) * 3, "indices": torch.randint(40, (120,), generator=generator)}
    features = {None: torch.rand(40, 5, generator=generator)}
    task: dict[str, Any] = {"graph": graph, "features": features, "batch_size": 9, "fanouts": [-1, -1]}
    net, seeds, found = epoch_process.SAGE(5), torch.arange(30, 40), []
    for library in ("graphfeed", "graphfeed.pyg"):
        for workers in (0, 1):
            name, load = epoch_process.LIBRARIES[library](task, fetching := epoch_process.Fetching())
            loaded = [(labels, net(rows, hops())) for rows, hops, labels in load(seeds, workers)]
            labels = torch.cat([own for own, _ in loaded])
            assert labels.sort().values.tolist() == seeds.tolist()
            found.append(torch.cat([scores for _, scores in loaded])[labels.argsort()])
            assert name.startswith(library)
            assert (fetching.seconds > 0) == (workers == 0)
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


def test_an_epoch_is_told_by_its_parts_with_and_without_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = {"0": [3.0, 1.0, 4.0, 0.0], "1": [0.0, 0.0, 4.0, 1.0]}
    monkeypatch.setattr(epoch, "find_peer", lambda _, told, __: "none" if told["library"] == "PyG" else ("own", None))
    monkeypatch.setattr(epoch, "ask", lambda _, workers: epochs[workers])
    left_out, beside, alone = epoch.report(quick(tmp_path, 2))
    assert left_out == "PyG is left out: none\n"
    parts = {"own: sampling": 0.375, "own: features": 0.125, "own: step": 0.5}
    assert [(row.what, row.ratio) for row in alone.rows] == [*parts.items()] * 3  # type: ignore[attr-defined]
    parts = {"own: step": 0.8, "own: waiting": 0.2}
    assert [(row.what, row.ratio) for row in beside.rows] == [*parts.items()] * 3  # type: ignore[attr-defined]
