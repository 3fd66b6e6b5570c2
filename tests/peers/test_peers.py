"""Comparison with other libraries: measured in separate processes and in turn."""

import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import epoch_process, peers
from graphfeed.pyg.data import import_pyg


@pytest.mark.slow
@pytest.mark.parametrize("library", ["GraphBolt", "PyG with pyg-lib", "PyG with torch-sparse"])
def test_a_peer_makes_the_task_that_is_written_or_says_what_is_missing(library: str, tmp_path: Path) -> None:
    arrays = {"csc_indptr": torch.tensor([0, 2, 3, 3]), "indices": torch.tensor([1, 2, 0])}
    task = peers.Task(arrays, torch.tensor([0, 1]), 2, (-1,))
    peers.write_task(tmp_path, task, {None: torch.ones(3, 2)})
    with ExitStack() as stack:
        peer = peers.start_peer(library, str(tmp_path), replace(task, features={None: torch.ones(3, 2)}), stack)
        if isinstance(peer, str):
            assert library.rpartition(" ")[2] in peer or "dgl" in peer
        else:
            assert re.fullmatch(rf"{library[:3]}.*, torch [\d.]+", peer[0])
            assert peer[1]()[1] == 3


def test_all_libraries_train_the_same_net_with_what_they_load() -> None:
    """Full fan-outs make sampling deterministic; labels are the seeds here."""
    import_pyg("torch_geometric.loader", "tests")
    generator = torch.Generator().manual_seed(0)
    graph = {"csc_indptr": torch.arange(41) * 3, "indices": torch.randint(40, (120,), generator=generator)}
    features = {None: torch.rand(40, 5, generator=generator)}
    task: dict[str, Any] = {"graph": graph, "features": features, "batch_size": 9, "fanouts": [-1, -1]}
    net, seeds, found = epoch_process.SAGE(5), torch.arange(30, 40), []
    for library, make in epoch_process.LIBRARIES.items():
        for workers in (0, 1):
            try:
                name, load = make(task, fetching := epoch_process.Fetching())
            except ImportError:
                continue  # a peer that is not installed here
            loaded = [(labels, net(rows, hops())) for rows, hops, labels in load(seeds, workers)()]
            labels = torch.cat([own for own, _ in loaded])
            assert labels.sort().values.tolist() == seeds.tolist()
            found.append(torch.cat([scores for _, scores in loaded])[labels.argsort()])
            assert name.startswith(library.partition(" ")[0])
            assert (fetching.seconds > 0) == (workers == 0)
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])
