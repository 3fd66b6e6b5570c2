"""Any engine with the interface of the standard library runs the workers, and the mini-batches are the same bits."""

import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.loader.executors.process_executor import ProcessExecutor
from tests import pipelines
from tests.digests import digests
from tests.graph_at import GraphAt

SEED = 7


def threads() -> Executor:
    return ThreadPoolExecutor(2)


def process_pool() -> Executor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


def own_processes() -> Executor:
    return ProcessExecutor(2)


@contextmanager
def dask_cluster() -> Iterator[Executor]:
    """Start a scheduler and two worker processes of this machine."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            memory_limit=None,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


@pytest.mark.slow
@pytest.mark.parametrize("start", [threads, process_pool, own_processes, dask_cluster])
def test_every_engine_gives_the_same_mini_batches(start: Callable[[], AbstractContextManager[Executor]]) -> None:
    pipe = pipelines.shuffled()
    expected = [digests(pipe.with_seed(SEED, epoch)) for epoch in range(2)]
    with start() as executor:
        loader = gf.DataLoader(pipe, num_workers=2, executor=executor, seed=SEED)
        assert [digests(loader) for _ in range(2)] == expected
        batches = iter(loader)
        next(batches)
        del batches
        assert len(digests(loader)) == len(loader)


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


@pytest.mark.slow
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
