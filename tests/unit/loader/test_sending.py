"""Data sent to worker processes and back: stages, functions of notebooks, errors."""

import copyreg
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.loader import LoaderOptions, ProcessExecutor, make_plan
from tests.kinds.pipelines import seeds
from tests.stand_ins.scripts import run

pytestmark = pytest.mark.usefixtures("fork_server", "no_leaks")
PROCESSES = LoaderOptions(num_workers=2, in_threads=False)


class Holds(gf.Transform):
    value: Any


def in_worker(value: Any) -> bool:
    """Return whether a stage that holds a value runs in worker processes, together with the fetch before it."""
    store = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(torch.zeros(4, 1 << 16))})
    pipe = Holds(seeds().transform().fetch_feature(store, ["x"]), value)
    (line,) = [line for line in make_plan(pipe, PROCESSES).explain().splitlines() if "Holds(" in line]
    return line.split()[0] == "worker"


def test_small_values_are_sent_with_their_stage_and_large_ones_and_locks_stay() -> None:
    for small in (3, torch.arange(9), "text", Holds):
        assert in_worker(small), small
    for value in (torch.zeros(1 << 16), torch.zeros(1, device="meta"), "a" * (1 << 16), threading.Lock()):
        assert not in_worker(value), type(value)


def add(minibatch: gf.MiniBatch, by: Any) -> gf.MiniBatch:
    return gf.MiniBatch(seeds=minibatch.seeds + torch.as_tensor(by).detach())


def test_a_stage_may_hold_a_tensor_that_was_computed_from_one_with_gradients() -> None:
    by = 2 * torch.tensor([2.0], requires_grad=True)
    with gf.DataLoader(seeds().transform(partial(add, by=by)), 1, worker="process") as loader:
        assert [batch.seeds.tolist() for batch in loader] == [[4, 5], [6, 7]]


OF_A_NOTEBOOK = """
import pickle, sys, threading
import graphfeed as gf

def work(minibatch):
    return minibatch

lock = threading.Lock()
source = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2)
for cloudpickle in (sys.modules.get("cloudpickle") or __import__("cloudpickle"), None):
    sys.modules["cloudpickle"] = cloudpickle
    for function in (work, lambda minibatch: minibatch, lambda minibatch: (lock, minibatch)[1]):
        try:
            with gf.DataLoader(source.transform().transform(function), 1, worker="process") as loader:
                print([minibatch.seeds.tolist() for minibatch in loader])
        except pickle.PicklingError as error:
            print(error)
"""


@pytest.mark.slow
def test_what_a_notebook_defines_is_sent_by_cloudpickle_or_named_with_the_ways_out() -> None:
    pytest.importorskip("cloudpickle")
    done = run("-c", OF_A_NOTEBOOK)
    assert done.returncode == 0, done.stderr
    named, unnamed, locked, *without = done.stdout.splitlines()
    assert named == unnamed == "[[0, 1], [2, 3]]"
    stage = "MiniBatchTransformer, stage 3, can't be sent to worker processes ("
    for text in (locked, *without):
        assert stage in text
        assert "or use worker='thread'" in text
    assert "lock" in locked
    assert "work was defined in a notebook" in without[0]
    assert all("; or install cloudpickle" in text for text in without)


OF_A_SCRIPT = """
import graphfeed as gf

if __name__ == "__main__":
    def work(minibatch):
        return minibatch

    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2).transform(work)
    list(gf.DataLoader(pipe, 1, worker="process"))
"""


@pytest.mark.slow
def test_a_function_that_is_defined_in_the_main_block_of_a_script_is_an_error_that_says_where_it_belongs(
    tmp_path: Path,
) -> None:
    (tmp_path / "script.py").write_text(OF_A_SCRIPT)
    done = run(str(tmp_path / "script.py"))
    assert "Can't get attribute 'work'" in done.stderr
    assert "define the functions and classes of stages above it" in done.stderr


class NeedsTwo(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Speechless(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)

    def __str__(self) -> str:
        raise ValueError("no text")


class Leaver(Exception):
    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("raise SystemExit",)


class Pretender(Exception):
    def __reduce__(self) -> tuple[object, ...]:
        return str, ("no exception",)


UNSENDABLE: dict[Any, tuple[tuple[Any, ...], str]] = {
    NeedsTwo: ((1, 2), "NeedsTwo: 1 and 2"),
    Speechless: ((1, 2), "Speechless, whose __str__ raises"),
    Leaver: (("left",), "Leaver: left"),
    Pretender: (("meant",), "Pretender: meant"),
}


def raise_with_note(kind: type[Exception], given: tuple[Any, ...]) -> None:
    # Another library may have registered ways to pickle exceptions.
    copyreg.dispatch_table.pop(kind, None)
    error = kind(*given)
    error.add_note("where")
    raise error


def test_an_error_that_does_not_travel_is_told_by_a_runtime_error_with_its_notes() -> None:
    with ProcessExecutor(1, timeout=60) as executor:
        for kind, (given, text) in UNSENDABLE.items():
            with pytest.raises(RuntimeError, match=text) as caught:
                executor.submit(raise_with_note, kind, given).result(60)
            assert type(caught.value) is RuntimeError
            assert "where" in caught.value.__notes__
