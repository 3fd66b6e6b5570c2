"""Graphs by path and by name. GraphBolt overwrites a graph whose name exists; graphfeed raises an error."""

import contextlib
import copy
import gc
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphfeed.storage import FusedCSCSamplingGraph, fused_csc_sampling_graph, load_from_shared_memory, load_graph
from graphfeed.storage.graph import SamplingRequest
from tests.kinds.digests import assert_same
from tests.kinds.pipelines import random_edges
from tests.kinds.small_graphs import KEY, make_graph, make_typed_graph

leaves_nothing = pytest.mark.usefixtures("no_leaks")
NAME = f"test-{os.getpid()}"
IN_MEMORY = Path(f"/dev/shm/graphfeed.{NAME}")
PAGE = 4096
OWNER = """
import sys
from graphfeed.storage import from_coo
graph = from_coo(([1, 2, 0], [0, 0, 2]), num_nodes=3).copy_to_shared_memory(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
print(graph.indices.tolist())
"""


def large() -> FusedCSCSamplingGraph:
    """Return a graph that pickles as a handle."""
    edges = random_edges(1000, 1000, 1 << 14, 0)[0]
    return fused_csc_sampling_graph(torch.linspace(0, 1 << 14, 1001).long(), edges, edge_attributes={"w": edges / 2})


MAKES: list[Callable[[], FusedCSCSamplingGraph]] = [make_graph, make_typed_graph, large]


def total_of(graph: FusedCSCSamplingGraph) -> tuple[int, int]:
    """Return a sum over a graph received from another process, and modify the graph."""
    total = int(graph.indices.sum())
    graph.edge_attribute("w")[0] = 77
    return total, os.getpid()


def load_and_sum(name: str) -> tuple[int, int]:
    """Call `total_of` with a graph in shared memory."""
    return total_of(load_from_shared_memory(name))


def test_what_is_written_into_a_graph_from_a_file_stays_here(tmp_path: Path) -> None:
    large().save(tmp_path / "graph")
    before = (tmp_path / "graph").read_bytes()
    graph = load_graph(str(tmp_path / "graph"))
    graph.edge_attribute("w")[0] = 77
    assert_same(pickle.loads(pickle.dumps(graph)).edge_attribute("w"), graph.edge_attribute("w"))
    assert (tmp_path / "graph").read_bytes() == before


def test_a_file_that_holds_no_graph_is_refused(tmp_path: Path) -> None:
    make_graph().save(tmp_path / "graph")
    data = bytearray((tmp_path / "graph").read_bytes())
    place = data.rindex(make_graph().indices.numpy().tobytes())
    data[place] = 99
    (tmp_path / "graph").write_bytes(data)
    with pytest.raises(ValueError, match=r"indices must be in 0 .. 4, but holds 99") as caught:
        load_graph(tmp_path / "graph")
    assert caught.value.__notes__ == [
        f"in {tmp_path / 'graph'}, which was changed after it was saved, or written from an invalid graph"
    ]


def test_a_file_that_is_as_it_was_saved_opens_and_is_sampled_without_a_pass(tmp_path: Path) -> None:
    """An invalid id, in a place that is not sampled, is not noticed before all is read."""
    whole = large()
    whole.save(tmp_path / "graph")
    found, content = (tmp_path / "graph").stat(), bytearray((tmp_path / "graph").read_bytes())
    place = content.rindex(whole.indices[-3:].numpy().tobytes())
    content[place : place + 8] = bytes([0, 0, 0, 1] * 2)
    (tmp_path / "graph").write_bytes(content)
    os.utime(tmp_path / "graph", ns=(found.st_atime_ns, found.st_mtime_ns))
    shutil.copy2(tmp_path / "graph", tmp_path / "copy")
    shutil.copyfile(tmp_path / "graph", tmp_path / "foreign")
    seeds, fanouts = torch.arange(9), torch.tensor([2])
    for name in ("graph", "copy"):
        graph = pickle.loads(pickle.dumps(load_graph(tmp_path / name)))
        hops = graph.sample_neighbors(seeds, fanouts, key=KEY)
        assert_same(hops, whole.sample_neighbors(seeds, fanouts, key=KEY))
    for touches_all in (graph.check, lambda: graph.cumulative_weights("w"), lambda: graph.to("meta")):
        with pytest.raises(ValueError, match="indices must be in"):
            touches_all()
    with pytest.raises(ValueError, match="indices must be in"):
        load_graph(tmp_path / "foreign")


def test_only_a_valid_graph_is_saved(tmp_path: Path) -> None:
    graph = copy.deepcopy(make_graph())
    graph.indices.numpy()[0] = 99
    with pytest.raises(ValueError, match=r"indices must be in 0 .. 4, but holds 99"):
        graph.save(tmp_path / "graph")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("graph", [make_graph(w=torch.ones(9)), make_typed_graph(w=torch.ones(6))])
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_that_has_its_stamp_leads_nowhere(
    graph: FusedCSCSamplingGraph, data: st.DataObject, tmp_path: Path
) -> None:
    path = tmp_path / "graph"
    graph.save(path)
    found, content = path.stat(), bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(PAGE, len(content) - 8))
        content[place : place + 8] = data.draw(st.integers(-(2**63), 2**63 - 1)).to_bytes(8, "little", signed=True)
    path.write_bytes(content)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    with contextlib.suppress(ValueError):
        graph = load_graph(path)
        is_typed = graph.node_type_to_id is not None
        seeds = {"user": torch.arange(2), "item": torch.arange(2)} if is_typed else torch.arange(4)
        fanouts = [torch.tensor([1] * 2), torch.tensor([3])] if is_typed else [torch.tensor([2]), torch.tensor([-1])]
        for again in (False, True):
            for hops in range(1, 3):
                request = SamplingRequest(tuple(fanouts[:hops]), again)
                with contextlib.suppress(ValueError):
                    graph.sample_hops(seeds, request, [KEY] * hops)
                with contextlib.suppress(ValueError):
                    graph.sample_hops(seeds, replace(request, strategy="labor"), [(KEY, KEY)] * hops)
        with contextlib.suppress(ValueError):
            graph.cumulative_weights("w")
        with contextlib.suppress(ValueError):
            graph.random_walks(torch.arange(3), 4, key=KEY)


@leaves_nothing
def test_a_name_brings_the_graph_back() -> None:
    for make in MAKES:
        graph = make()
        shared = graph.copy_to_shared_memory(NAME)
        again = load_from_shared_memory(NAME)
        assert type(shared) is type(again) is FusedCSCSamplingGraph
        assert_same(shared.fields(), graph.fields())
        assert_same(again.fields(), graph.fields())
        assert again.indices.data_ptr() not in (
            shared.indices.data_ptr(),
            load_from_shared_memory(NAME).indices.data_ptr(),
        )
        again.indices[0] = 2
        assert shared.indices[0] == 2
        assert graph.indices[0] == make().indices[0]
        del shared, again


@leaves_nothing
def test_a_name_that_is_taken_is_refused_and_its_graph_stays() -> None:
    shared = make_graph().copy_to_shared_memory(NAME)
    with pytest.raises(FileExistsError, match=rf"there is a graph '{NAME}' in shared memory already; choose another"):
        make_typed_graph().copy_to_shared_memory(NAME)
    assert_same(load_from_shared_memory(NAME).fields(), make_graph().fields())
    del shared


@leaves_nothing
def test_a_name_goes_with_its_graph_and_who_has_loaded_it_keeps_it() -> None:
    shared = make_graph().copy_to_shared_memory(NAME)
    again = load_from_shared_memory(NAME)
    del shared
    gc.collect()
    assert not IN_MEMORY.exists()
    with pytest.raises(FileNotFoundError, match=rf"there is no graph '{NAME}' in shared memory; it exists while"):
        load_from_shared_memory(NAME)
    assert_same(again.fields(), make_graph().fields())
    taken = make_typed_graph().copy_to_shared_memory(NAME)
    assert_same(load_from_shared_memory(NAME).fields(), taken.fields())


@leaves_nothing
def test_somebody_elses_graph_of_the_same_name_stays() -> None:
    first = make_graph().copy_to_shared_memory(NAME)
    IN_MEMORY.unlink()
    second = make_typed_graph().copy_to_shared_memory(NAME)
    del first
    gc.collect()
    assert_same(load_from_shared_memory(NAME).fields(), second.fields())


@pytest.mark.slow
@leaves_nothing
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_other_processes_see_it_by_name_and_by_handle(method: str) -> None:
    shared = large().copy_to_shared_memory(NAME)
    total = int(shared.indices.sum())
    assert len(pickle.dumps(shared)) < 1 << 12
    with ProcessPoolExecutor(1, get_context(method)) as executor:
        assert executor.submit(load_and_sum, NAME).result(60)[0] == total
        assert shared.edge_attribute("w")[0] == 77
        shared.edge_attribute("w")[0] = 0
        assert executor.submit(total_of, shared).result(60)[0] == total
        assert shared.edge_attribute("w")[0] == 77
    assert load_from_shared_memory(NAME).num_edges == 1 << 14  # the exit of a forked process removed nothing


@pytest.mark.slow
@leaves_nothing
def test_it_ends_with_the_process_that_made_it_and_says_nothing() -> None:
    arguments = [sys.executable, "-W", "error", "-c", OWNER, NAME]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"ready\n"
        graph = load_from_shared_memory(NAME)
        graph.indices[0] = 0
        assert owner.communicate(timeout=60) == (b"[0, 2, 0]\n", b"")
    assert not IN_MEMORY.exists()
    assert_same(graph.indices, torch.tensor([0, 2, 0]))
