"""Comparison with other libraries: measured in separate processes, in turn, and as the README describes."""

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import epoch_process, peers
from graphfeed.pyg.data import import_pyg
from tests.kinds.pages import rows

ROOT = Path(__file__).resolve().parents[2]


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
