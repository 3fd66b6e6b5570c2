import json
from pathlib import Path

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.loader.warm_up import GRAPH_DTYPES
from graphfeed.ops.cpu import kernel_cache
from graphfeed.storage.datasets.processed_graph import type_dtype
from tests.scripts import REPOSITORY, run

FOR_OTHER_PROCESSORS = {"records.crc32c.crc32c_by_table"}
COVERAGE = """
import importlib, json, pkgutil
import graphfeed.ops.cpu as package
from graphfeed.loader.warm_up import GRAPH_DTYPES, uses
from graphfeed.ops.cpu.kernel_cache import KernelCache, watch_kernels
from tests import golden_pipelines

for use in uses(GRAPH_DTYPES[:1]):
    use()
unused = []
for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
    for name, value in vars(importlib.import_module(found.name)).items():
        is_own = isinstance(getattr(value, "_cache", None), KernelCache) and value.py_func.__module__ == found.name
        if is_own and not value.signatures:
            unused.append(f"{found.name.removeprefix('graphfeed.ops.cpu.')}.{name}")
later = []
with watch_kernels(lambda kernel: later.append([name, *kernel])):
    for name, build in golden_pipelines.ALL.items():
        for minibatch in build() if "int32" not in name else ():
            pass
    for name in ("node", "edge"):
        times = {f"{name}_timestamp_attr_name": "time", "prob_name": "weight", "disjoint": True}
        list(golden_pipelines.nodes().temporal_sample_neighbor(golden_pipelines.untyped(), [3, 2], **times))
print(json.dumps({"unused": unused, "later": later}))
"""
WARM_UP = """
import json, sys
import torch
import graphfeed as gf
torch.set_default_device("meta")
from graphfeed.loader import warm_up
sys.modules["graphfeed.loader.warm_up"].uses = lambda: [
    sys.modules["graphfeed.loader.warm_up"].call_permute, lambda: torch.zeros(1).tolist()
]
print(json.dumps([gf.warm_up(), gf.warm_up()]))
"""
BOTH = ["sampling.permute.hash_places", "sampling.permute.permute"]


@pytest.mark.parametrize("num_types", [2, 300])
def test_graphs_of_few_and_of_many_edge_types_have_dtypes_that_it_knows(num_types: int) -> None:
    one = torch.tensor([0]), torch.tensor([0])
    graph = gf.from_coo({f"user:{kind}:user": one for kind in range(num_types)}, {"user": 1})
    assert graph.type_per_edge is not None
    assert (graph.csc_indptr.dtype, graph.indices.dtype, graph.type_per_edge.dtype) in GRAPH_DTYPES


def test_data_sets_have_edge_types_that_it_knows() -> None:
    known = {edge_types for _, _, edge_types in GRAPH_DTYPES}
    found = {torch.from_numpy(np.empty(0, type_dtype(4, auto_cast))).dtype for auto_cast in (True, False)}
    assert found == {torch.uint8, torch.int64}
    assert found <= known


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_calls_every_kernel_and_with_the_types_of_a_graph_in_int64_no_pipeline_needs_another() -> None:
    done = run("-c", COVERAGE, cwd=REPOSITORY, seconds=900)  # it may have to compile the kernels
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["unused"]) <= FOR_OTHER_PROCESSORS
    assert found["later"] == []


@pytest.mark.slow
def test_kernels_are_compiled_once_and_it_says_which(tmp_path: Path) -> None:
    first, again = (run("-c", WARM_UP, GRAPHFEED_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    for done, compiled in ((first, True), (again, False)):
        loads, later = json.loads(done.stdout)
        assert [kernel[0] for kernel in loads] == BOTH
        assert [kernel[3] for kernel in loads] == [compiled, compiled]
        assert all("int64" in kernel[1] and kernel[2] > 0 for kernel in loads)
        assert later == []
        assert [f"graphfeed: compiled {name} in " in done.stderr for name in BOTH] == [compiled, compiled]
    assert "2 kernels compiled and 0 found on disk" in first.stderr
    assert "0 kernels compiled and 2 found on disk" in again.stderr
    assert len(list(tmp_path.rglob("*.nbc"))) == 2


def test_watchers_are_told_of_nothing_once_they_leave() -> None:
    with kernel_cache.watch_kernels(lambda _: None):
        assert len(kernel_cache.WATCHERS) == 1
    assert kernel_cache.WATCHERS == []
