"""Objects whose tensors are pickled as handles to shared memory: visibility of writes, and lifetime of the memory."""

import copy
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.storage import ItemSet, TorchBasedFeature, from_coo
from graphfeed.storage.memory import Handle, Shareable, find_places
from tests.kinds.digests import assert_same
from tests.stand_ins.forked import in_child
from tests.stand_ins.locked_memory import LockedMemory

leaves_nothing = pytest.mark.usefixtures("no_leaks")
LARGE = 100_000
OWNER = """
import pickle, sys, torch
from graphfeed.storage import TorchBasedFeature
feature = TorchBasedFeature(torch.arange(100_000)[:, None])
print(pickle.dumps(feature).hex(), flush=True)
sys.stdin.read()
print(feature.read()[0].item())
"""


class Box(Shareable):
    """A shareable object with arbitrary attributes."""

    values: torch.Tensor
    more: torch.Tensor

    def __init__(self, **content: Any) -> None:
        self.__dict__.update(content)


def read_and_write(box: Box) -> int:
    """Return a value that the other process wrote, and write another value."""
    value = int(box.values[1])
    box.values[0] = 42
    return value


def handle_of(tensor: torch.Tensor) -> Handle:
    """Return the handle of a tensor in shared memory."""
    (place,) = find_places([tensor])
    assert isinstance(place, Handle)
    return place


@pytest.mark.slow
@leaves_nothing
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.thorough)])
def test_both_sides_see_what_the_other_writes(method: str) -> None:
    box = Box(values=torch.zeros(LARGE, dtype=torch.int64))
    pickle.dumps(box)  # moves the tensor to shared memory
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as executor:
        executor.submit(int).result()
        box.values[1] = 7
        assert executor.submit(read_and_write, box).result() == 7
        assert box.values[0] == 42
        assert executor.submit(read_and_write, pickle.loads(pickle.dumps(box))).result() == 7


@pytest.mark.slow
@leaves_nothing
def test_a_process_that_is_no_relative_sees_the_same_memory_which_outlives_its_owner() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    feature = pickle.loads(bytes.fromhex(owner.stdout.readline().decode()))
    assert_same(feature.read(), torch.arange(LARGE)[:, None])
    feature.read()[0] = 99
    assert owner.communicate(timeout=60)[0] == b"99\n"
    # The memory exists while any process maps it, and can be sent to further processes.
    for found in (feature, pickle.loads(pickle.dumps(feature))):
        assert found.read()[:3].tolist() == [[99], [1], [2]]


@leaves_nothing
def test_an_owner_that_is_dead_and_an_object_that_is_gone_are_named() -> None:
    feature = TorchBasedFeature(torch.zeros(LARGE, 1))

    def own_and_end() -> str:
        torch.set_num_threads(1)  # a fork has no other torch threads
        return pickle.dumps(feature).hex()

    for packed in (bytes.fromhex(in_child(own_and_end)), pickle.dumps(Box(values=torch.zeros(LARGE)))):
        words = (
            r"shared block /proc/\d+/fd/\d+ can't be opened .*; it exists on this machine while the pickled .*: keep"
        )
        with pytest.raises(FileNotFoundError, match=words):
            pickle.loads(packed)


@leaves_nothing
def test_other_memory_at_the_same_place_is_not_taken_for_the_block() -> None:
    first = Box(values=torch.zeros(LARGE))
    packed, path = pickle.dumps(first), handle_of(first.values).path
    del first
    second = Box(values=torch.ones(LARGE))
    pickle.dumps(second)
    assert handle_of(second.values).path == path, "the system gives the lowest free descriptor"
    with pytest.raises(FileNotFoundError, match="another file replaced it"):
        pickle.loads(packed)


def test_containers_keep_their_shape_and_doubles_stay_one() -> None:
    values = torch.zeros(LARGE)
    box = Box(parts={"a": [values, (values, torch.ones(2))], 3: None}, name="x")
    again = pickle.loads(pickle.dumps(box))
    assert_same(again.parts, {"a": [values, (values, torch.ones(2))], 3: None})
    assert again.parts["a"][0] is again.parts["a"][1][0]
    assert again.name == "x"


@leaves_nothing
def test_the_first_pickling_moves_and_later_ones_do_not_and_copies_and_small_tensors_are_on_their_own() -> None:
    box, small = Box(values=torch.arange(LARGE)), Box(values=torch.arange(3))
    first = pickle.dumps(box)
    address = box.values.data_ptr()
    assert pickle.dumps(box) == first
    assert box.values.data_ptr() == address
    box.more = torch.ones(LARGE)
    again = pickle.loads(pickle.dumps(box))
    assert_same([again.values, again.more], [torch.arange(LARGE), torch.ones(LARGE)])
    duplicate, received = copy.deepcopy(box), pickle.loads(pickle.dumps(small))
    duplicate.values[0] = received.values[0] = 9
    assert (int(box.values[0]), small.values.tolist()) == (0, [0, 1, 2])
    del box
    gc.collect()
    again.values += 1  # the memory goes with its last user
    assert int(again.values[-1]) == LARGE


@leaves_nothing
def test_two_threads_may_pickle_at_once() -> None:
    for _ in range(20):
        box = Box(values=torch.arange(10 * LARGE))
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(pickle.dumps, [box, box])
        assert first == second
        assert int(pickle.loads(first).values[-1]) == 10 * LARGE - 1


@pytest.mark.slow
@pytest.mark.thorough
def test_without_memory_files_a_temporary_file_goes_with_its_process(tmp_path: Path) -> None:
    program = """
import os, pickle, tempfile, torch
del os.memfd_create
from graphfeed.storage import TorchBasedFeature
feature = TorchBasedFeature(torch.arange(100_000)[:, None])
again = pickle.loads(pickle.dumps(feature))
again.read()[0] = 5
assert feature.read()[0] == 5
if os.fork() == 0:
    raise SystemExit
os.wait()
print(len(os.listdir(tempfile.gettempdir())))
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert run.stdout == b"1\n"
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_torch_holds_the_tensors(tmp_path: Path) -> None:
    """A handle would be useless once its owner has exited, which would only be noticed then."""
    feature = TorchBasedFeature(torch.arange(LARGE)[:, None])
    torch.save({"feature": feature, "items": ItemSet(torch.arange(LARGE), names="seeds")}, tmp_path / "all.pt")
    del feature
    gc.collect()
    again = torch.load(tmp_path / "all.pt", weights_only=False)
    assert torch.equal(again["feature"].read(), torch.arange(LARGE)[:, None])
    assert torch.equal(again["items"][:], torch.arange(LARGE))


@pytest.mark.usefixtures("small_is_shared")
def test_what_is_pinned_first_stays_so_and_large_copies_are_made_once() -> None:
    rows = torch.arange(LARGE * 1.0)[1:].reshape(-1, 3)
    with LockedMemory().installed() as runtime:
        feature = TorchBasedFeature(rows).pin_memory_()
        locked = feature.read()
        assert torch.equal(locked, rows)
        assert locked.data_ptr() != rows.data_ptr()
        assert pickle.loads(pickle.dumps(feature)).read().data_ptr() == feature.read().data_ptr() == locked.data_ptr()
        assert runtime.holds_all(locked)
        assert feature.is_pinned()
        del feature
        gc.collect()
        assert runtime.locked == {}


@pytest.mark.usefixtures("small_is_shared")
def test_what_graphfeed_makes_stays_where_it_is() -> None:
    edges = torch.randint(LARGE, (2, 2 * LARGE))
    typed = from_coo({"a:b:a": edges}, {"a": LARGE}, edge_attributes={"w": {"a:b:a": torch.rand(2 * LARGE)}})
    plain = from_coo(edges, LARGE, edge_attributes={"t": torch.arange(2 * LARGE)}, sort_by="t")
    for graph in (plain, typed):
        arrays = [graph.csc_indptr, graph.indices, graph.type_per_edge, *graph.edge_attributes.values()]
        again = pickle.loads(pickle.dumps(graph))
        after = [again.csc_indptr, again.indices, again.type_per_edge, *again.edge_attributes.values()]
        for before, found in zip(arrays, after, strict=True):
            assert (before is None) == (found is None)
            assert before is None or before.data_ptr() == found.data_ptr()
        assert graph.indices is arrays[1]


@leaves_nothing
def test_a_forked_process_sends_its_own_descriptor_and_writes_what_all_see() -> None:
    box = Box(values=torch.arange(LARGE))
    pickle.dumps(box)  # moves the tensor to shared memory
    path = handle_of(box.values).path

    def write() -> str:
        box.values[3] = 30
        return handle_of(box.values).path

    assert in_child(write) != path
    assert box.values[3] == 30
