"""Any executor runs a loader's workers; executors on other machines open graphs there, with bit-identical results."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.loader import ProcessExecutor
from graphfeed.loader.executors import ThreadExecutor
from tests.kinds import pipelines
from tests.kinds.digests import digest, digests
from tests.stand_ins.clusters import dask_cluster, ray_cluster
from tests.stand_ins.scripts import REPOSITORY
from tests.stand_ins.waiting import FailsAt, unchanged

SEED = 7
SECONDS = 60.0
AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
"""Settings of Open MPI 4 and 5 for tests."""


def pool_of_threads() -> Executor:
    return ThreadPoolExecutor(2)


def pool_of_processes() -> Executor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))


ENGINES: list[Any] = [
    pytest.param(partial(ThreadExecutor, 2), id="threads"),
    pytest.param(partial(ProcessExecutor, 2, timeout=SECONDS), id="processes"),
    pool_of_threads,
    pool_of_processes,
    pytest.param(dask_cluster, marks=pytest.mark.thorough),
    pytest.param(ray_cluster, marks=pytest.mark.thorough),
]
"""Executors for a loader's workers: graphfeed's own, pools of the standard library, clusters of other libraries."""


def one_after_another() -> Iterator[gf.MiniBatch]:
    return (gf.MiniBatch(seeds=torch.tensor([node])) for node in range(4))


@pytest.mark.parametrize("engine", ENGINES)
def test_with_any_engine_a_loader_keeps_order_failures_and_what_it_was_given(
    engine: Callable[[], AbstractContextManager[Executor]], request: pytest.FixtureRequest
) -> None:
    if engine not in (dask_cluster, ray_cluster):  # which keep their own threads
        request.getfixturevalue("fork_server")
        request.getfixturevalue("no_leaks")
    pipe = pipelines.shuffled()
    expected = [digests(pipe.with_seed(3, epoch)) for epoch in range(2)]
    with engine() as executor:
        with gf.DataLoader(pipe, 2, executor=executor, seed=3) as loader:
            next(iter(loader))  # leaving an epoch does not affect later ones
            loader.set_epoch(0)
            assert [digests(loader) for _ in range(2)] == expected
        with gf.DataLoader(pipe.transform(FailsAt(5)), 2, executor=executor, seed=3) as loader:
            minibatches = iter(loader)
            assert [digest(next(minibatches)) for _ in range(5)] == expected[0][:5]
            with pytest.raises(ArithmeticError, match="no") as caught:
                next(minibatches)
            assert "MiniBatchTransformer, stage 4, mini-batch 5 of epoch 0" in caught.value.__notes__[0]
        # A source that can't be indexed stays here, even if it can't be pickled, and its mini-batches are sent.
        given: Any = one_after_another()
        with gf.DataLoader(gf.MiniBatchTransformer(given, unchanged), 2, executor=executor) as loader:
            assert [minibatch.seeds.tolist() for minibatch in loader] == [[0], [1], [2], [3]]
        assert executor.submit(abs, -3).result(SECONDS) == 3, "it is left running"


MPI = """
from pathlib import Path
from mpi4py.futures import MPIPoolExecutor
import graphfeed as gf
from tests.kinds import pipelines
from tests.kinds.digests import digests
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


class GraphAt(gf.FusedCSCSamplingGraph):
    """Pickles as its path, so that each machine opens its own copy of the file, as in docs/many-machines.md."""

    def __init__(self, path: str) -> None:
        vars(self).update(vars(gf.load_graph(path)))
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphAt, (self.path,)


OPENED: dict[str, Callable[[str], gf.SamplingGraph]] = {"shared": gf.load_graph, "own": GraphAt}


def in_files(folder: Path, open_graph: Callable[[str], gf.SamplingGraph]) -> gf.Datapipe:
    """Return a pipeline whose graph and features are in files."""
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
