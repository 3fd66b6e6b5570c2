"""Engines on other machines give the same bits and open graphs there; what all engines keep is a law of executors."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import graphfeed as gf
from tests import pipelines
from tests.clusters import dask_cluster
from tests.digests import digests
from tests.graph_at import GraphAt
from tests.scripts import REPOSITORY

SEED = 7
AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
"""Open MPI wants these for a test, of its releases 4 and 5."""


MPI = """
from pathlib import Path
from mpi4py.futures import MPIPoolExecutor
import graphfeed as gf
from tests import pipelines
from tests.digests import digests
if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        assert executor.num_workers == 2
        found = digests(gf.DataLoader(pipelines.shuffled(), num_workers=2, executor=executor, seed=7))
    Path("found").write_text(" ".join(found))
"""


@pytest.mark.thorough
def test_workers_of_mpi_give_the_same_mini_batches(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    if shutil.which("mpiexec") is None:
        pytest.skip("no mpiexec")
    (tmp_path / "train.py").write_text(MPI)
    run = subprocess.run(
        ["mpiexec", "-n", "3", sys.executable, "-m", "mpi4py.futures", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path]), **AS_ROOT},
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "found").read_text().split() == digests(pipelines.shuffled().with_seed(SEED, 0))


OPENED: dict[str, Callable[[str], gf.SamplingGraph]] = {"shared": gf.load_graph, "own": GraphAt}


def in_files(folder: Path, open_graph: Callable[[str], gf.SamplingGraph]) -> gf.Datapipe:
    """Return a pipeline whose graph and features lie in files."""
    folder.mkdir()
    path, ids = folder / "graph", torch.arange(2000)
    gf.from_coo(pipelines.random_edges(2000, 2000, 20_000, 0), 2000).save(path)
    np.save(folder / "rows.npy", ids[:, None] * torch.ones(1, 40))
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.DiskBasedFeature(folder / "rows.npy")})
    pipe = gf.ItemSampler(gf.ItemSet(ids, names="seeds"), batch_size=200, shuffle=True)
    return pipe.sample_neighbor(open_graph(str(path)), [3, 4]).fetch_feature(store, node_feature_keys=["feat"])


def mapped_lines() -> list[str]:
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if "/graph" in line]


@pytest.mark.thorough
def test_workers_of_dask_open_graphs_by_their_path(tmp_path: Path) -> None:
    shared, own = (in_files(tmp_path / name, open_graph) for name, open_graph in OPENED.items())
    expected = digests(shared.with_seed(SEED, 0))
    # As on another machine, the file at that path is a copy.
    shutil.copy(tmp_path / "own" / "graph", tmp_path / "copy")
    os.replace(tmp_path / "copy", tmp_path / "own" / "graph")
    with dask_cluster() as executor:
        for pipe in (shared, own):
            assert digests(gf.DataLoader(pipe, num_workers=2, executor=executor, seed=SEED)) == expected
        mapped = executor._client.run(mapped_lines).values()  # type: ignore[attr-defined]
    for name in OPENED:
        found = [line for lines in mapped for line in lines if f"{tmp_path / name / 'graph'}" in line]
        assert found
        assert not [line for line in found if line.endswith("(deleted)")]
