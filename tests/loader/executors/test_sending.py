"""Data sent to worker processes and back: stages, tasks, functions of notebooks, errors."""

import copyreg
import pickle
import sys
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.datapipe import Shardable
from graphfeed.loader.executors import worker_task
from graphfeed.loader.executors.sending import LIMIT_BYTES, can_be_sent
from graphfeed.loader.executors.worker_main import RemoteError
from graphfeed.loader.executors.worker_task import WorkerTask, pack_work, work_packed
from graphfeed.loader.transport.pickling import dump
from tests import pipelines
from tests.digests import digest
from tests.pipelines import seeds
from tests.refusals import check_refused
from tests.scripts import run


class Holds(gf.Transform):
    value: Any


SMALL = [3, torch.arange(9), np.arange(9), "text", Holds]
LARGE = [torch.zeros(LIMIT_BYTES), np.zeros(LIMIT_BYTES), torch.zeros(1, device="meta"), "a" * LIMIT_BYTES]


@pytest.fixture
def without_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)


@pytest.mark.usefixtures("without_cloudpickle")
def test_small_values_travel_and_large_ones_and_functions_without_a_name_do_not() -> None:
    for value in SMALL:
        assert can_be_sent(Holds(seeds(), value)), value
    for value in [*LARGE, lambda: 3]:
        assert not can_be_sent(Holds(seeds(), value)), value
    assert can_be_sent(Holds(Holds(seeds(), threading.Lock()), 3)), "stages before do not count"
    assert not can_be_sent(Holds(seeds(), threading.Lock()))


def test_what_is_sent_as_a_handle_stays_where_it_is() -> None:
    feature = gf.TorchBasedFeature(torch.zeros(LIMIT_BYTES, 2))
    address = feature.read().data_ptr()
    assert can_be_sent(seeds().fetch_feature(gf.BasicFeatureStore({("node", None, "feat"): feature}), ["feat"]))
    assert feature.read().data_ptr() == address


def test_cloudpickle_sends_functions_without_a_name_but_no_large_values() -> None:
    pytest.importorskip("cloudpickle")
    assert can_be_sent(Holds(seeds(), lambda: 3))
    assert not can_be_sent(Holds(seeds(), LARGE[0]))


NOTEBOOK = """
import sys
import graphfeed as gf
from graphfeed.loader.executors.sending import can_be_sent

class Stage(gf.Transform):
    pass

def work(minibatch):
    return minibatch

source = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2)
for _ in range(2):
    print(can_be_sent(source.transform()), can_be_sent(Stage(source)), can_be_sent(source.transform(work)))
    sys.modules["cloudpickle"] = None
"""


@pytest.mark.slow
def test_a_class_of_a_notebook_needs_cloudpickle() -> None:
    done = run("-c", NOTEBOOK)
    assert (done.returncode, done.stdout) == (0, "True True True\nTrue False False\n"), done.stderr


def add_one(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    assert isinstance(minibatch.seeds, torch.Tensor)
    return gf.MiniBatch(seeds=minibatch.seeds + 1)


def test_work_makes_a_mini_batch_of_an_index_or_of_another_mini_batch() -> None:
    stage = seeds(6).transform(add_one)
    assert WorkerTask(seeds(6), (stage,))((0, 0, 2)).seeds.tolist() == [5, 6]
    assert WorkerTask(None, (stage,))(gf.MiniBatch(seeds=torch.tensor([9]))).seeds.tolist() == [10]


def test_work_as_bytes_gives_the_same_mini_batch() -> None:
    pipe = pipelines.heterogeneous()
    stages = gf.traverse(pipe)
    assert isinstance(stages[0], Shardable)
    work = WorkerTask(stages[0], tuple(stage for stage in stages if isinstance(stage, gf.Transform)))
    packed = pickle.dumps(work)
    assert digest(pickle.loads(work_packed(packed, dump(("run", (5, 1, 3)))))) == digest(work((5, 1, 3)))


def shift(minibatch: gf.MiniBatch, by: torch.Tensor) -> gf.MiniBatch:
    return gf.MiniBatch(seeds=minibatch.seeds + by)


def test_equal_stages_are_equal_bytes_which_workers_unpack_once_wherever_their_tensors_lie() -> None:
    stages = [seeds(6).transform(partial(shift, by=torch.tensor([4]))) for _ in range(2)]
    first, second = (pack_work(WorkerTask(seeds(6), (stage,))) for stage in stages)
    assert first == second
    assert pickle.loads(first)((0, 0, 1)).seeds.tolist() == [6, 7]


def test_a_stage_may_hold_a_tensor_that_was_computed_from_one_with_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    by = 2 * torch.tensor([2.0], requires_grad=True)
    work = pickle.loads(pack_work(WorkerTask(seeds(6), (seeds(6).transform(partial(shift, by=by)),))))
    assert work((0, 0, 1)).seeds.tolist() == [6, 7]


def test_a_strided_view_is_packed_without_what_it_leaves_out() -> None:
    view = torch.arange(100_000).reshape(1000, 100)[::10, 3]
    packed = dump(view)
    assert len(packed) < 2000
    assert torch.equal(pickle.loads(packed), view)


def test_a_failing_source_is_noted_with_the_index() -> None:
    with pytest.raises(IndexError) as caught:
        WorkerTask(seeds(6), ())((0, 4, 7))
    assert "in ItemSampler, stage 1, mini-batch 7 of epoch 4, in the main thread" in caught.value.__notes__[0]


def lost(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    """Represents a function of a notebook."""
    return minibatch


@pytest.fixture
def in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_task, "is_importable", lambda: False)
    monkeypatch.setattr(lost, "__module__", "__main__")


@pytest.mark.usefixtures("without_cloudpickle")
def test_a_lambda_is_refused_by_the_name_of_its_stage_and_with_the_ways_out() -> None:
    pipe = seeds(6).transform(add_one).transform(lambda minibatch: minibatch)
    culprit = (
        r"MiniBatchTransformer, stage 3, can't be sent to worker processes \(.*\); define it in a module"
        r".*or use worker='thread'; or install cloudpickle"
    )
    check_refused([(lambda: list(gf.DataLoader(pipe, 1, worker="process")), pickle.PicklingError, culprit)])


@pytest.mark.usefixtures("in_a_notebook", "without_cloudpickle")
def test_a_function_of_a_notebook_is_refused_and_what_is_defined_elsewhere_needs_no_extra() -> None:
    stages = (seeds(6).transform(add_one), seeds(6).transform(add_one).transform(lost))
    words = r"stage 3, .*lost was defined in a notebook .*; define"
    check_refused([(lambda: pack_work(WorkerTask(seeds(6), stages)), pickle.PicklingError, words)])
    work = pickle.loads(pack_work(WorkerTask(seeds(6), stages[:1])))
    assert work((0, 0, 2)).seeds.tolist() == [5, 6]


@pytest.mark.usefixtures("in_a_notebook")
def test_with_cloudpickle_what_other_processes_can_not_import_is_sent_by_value_and_a_lock_is_named() -> None:
    packed = pack_work(WorkerTask(seeds(6), (seeds(6).transform(lost),)))
    assert pickle.loads(packed)((0, 0, 2)).seeds.tolist() == [4, 5]
    assert len(packed) < 10_000
    lock = threading.Lock()
    stage = seeds(6).transform(lambda minibatch: (lock, minibatch)[1])
    words = r"Transformer, stage 2, can't be sent .*lock.*worker='thread'$"
    check_refused([(lambda: pack_work(WorkerTask(seeds(6), (stage,))), pickle.PicklingError, words)])


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


UNSENDABLE: list[tuple[Exception, str]] = [
    (NeedsTwo(1, 2), "NeedsTwo: 1 and 2"),
    (Speechless(1, 2), "Speechless, whose __str__ raises"),
    (Leaver("left"), "Leaver: left"),
    (Pretender("meant"), "Pretender: meant"),
]


def test_an_error_that_does_not_travel_is_told_by_a_runtime_error_with_its_notes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for error, text in UNSENDABLE:
        # Another library that a test imported may have registered ways to pickle exceptions.
        monkeypatch.delitem(copyreg.dispatch_table, type(error), raising=False)
        error.add_note("where")
        unpacked = RemoteError.of(error).unpack()
        assert type(unpacked) is RuntimeError
        assert text in str(unpacked)
        assert unpacked.__notes__ == ["where"]
