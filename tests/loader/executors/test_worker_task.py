import pickle
import sys
import threading

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.datapipe import Shardable
from graphfeed.loader.executors import worker_task
from graphfeed.loader.executors.worker_task import WorkerTask, pack_work, work_packed
from graphfeed.loader.transport.pickling import dump
from tests import pipelines
from tests.digests import digest
from tests.pipelines import seeds

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.complex64,
]


def add_one(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    assert isinstance(minibatch.seeds, torch.Tensor)
    return gf.MiniBatch(seeds=minibatch.seeds + 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (4, 3)])
def test_a_tensor_of_any_dtype_and_shape_survives_packing(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape).to(dtype)
    copy = pickle.loads(dump({"a": tensor}))["a"]
    assert copy.dtype == dtype
    assert torch.equal(copy, tensor)


def test_a_strided_view_is_packed_without_what_it_leaves_out() -> None:
    view = torch.arange(100_000).reshape(1000, 100)[::10, 3]
    packed = dump(view)
    assert len(packed) < 2000
    assert torch.equal(pickle.loads(packed), view)


def test_work_makes_a_mini_batch_of_an_index() -> None:
    stage = seeds(6).transform(add_one)
    assert WorkerTask(seeds(6), (stage,))((0, 0, 2)).seeds.tolist() == [5, 6]


def test_work_takes_a_mini_batch_where_there_is_no_source() -> None:
    stage = seeds(6).transform(add_one)
    assert WorkerTask(None, (stage,))(gf.MiniBatch(seeds=torch.tensor([9]))).seeds.tolist() == [10]


def test_work_as_bytes_gives_the_same_mini_batch() -> None:
    pipe = pipelines.heterogeneous()
    stages = gf.traverse(pipe)
    assert isinstance(stages[0], Shardable)
    work = WorkerTask(stages[0], tuple(stage for stage in stages if isinstance(stage, gf.Transform)))
    packed = pickle.dumps(work)
    assert digest(pickle.loads(work_packed(packed, dump((5, 1, 3))))) == digest(work((5, 1, 3)))


def test_a_failing_source_is_noted_with_the_index() -> None:
    with pytest.raises(IndexError) as caught:
        WorkerTask(seeds(6), ())((0, 4, 7))
    assert "in ItemSampler, stage 1, mini-batch 7 of epoch 4, in the main thread" in caught.value.__notes__[0]


def lost(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    """Stands for a function of a notebook."""
    return minibatch


@pytest.fixture
def in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_task, "is_importable", lambda: False)
    monkeypatch.setattr(lost, "__module__", "__main__")


@pytest.fixture
def without_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)


LAMBDA = seeds(6).transform(add_one).transform(lambda minibatch: minibatch)


@pytest.mark.usefixtures("without_cloudpickle")
def test_a_lambda_is_refused_by_the_name_of_its_stage_and_with_the_ways_out() -> None:
    culprit = (
        r"MiniBatchTransformer, stage 3, can't be sent to worker processes .*lambda.* define what it holds in a module"
    )
    with pytest.raises(pickle.PicklingError, match=culprit) as caught:
        next(iter(gf.DataLoader(LAMBDA, num_workers=1, worker="process")))
    assert "or use worker='thread'; or install cloudpickle" in str(caught.value)


@pytest.mark.usefixtures("in_a_notebook", "without_cloudpickle")
def test_a_function_of_a_notebook_is_refused_by_the_name_of_its_stage() -> None:
    stages = (seeds(6).transform(add_one), seeds(6).transform(add_one).transform(lost))
    with pytest.raises(pickle.PicklingError, match=r"stage 3, .*lost was defined in a notebook .*; define"):
        pack_work(WorkerTask(seeds(6), stages))


@pytest.mark.usefixtures("in_a_notebook", "without_cloudpickle")
def test_in_a_notebook_what_is_defined_elsewhere_needs_no_extra() -> None:
    work = pickle.loads(pack_work(WorkerTask(seeds(6), (seeds(6).transform(add_one),))))
    assert work((0, 0, 2)).seeds.tolist() == [5, 6]


@pytest.mark.usefixtures("in_a_notebook")
def test_what_other_processes_can_not_import_is_sent_by_value() -> None:
    packed = pack_work(WorkerTask(seeds(6), (seeds(6).transform(lost),)))
    assert pickle.loads(packed)((0, 0, 2)).seeds.tolist() == [4, 5]
    assert len(packed) < 10_000


def test_what_can_not_be_sent_at_all_is_named() -> None:
    lock = threading.Lock()
    stage = seeds(6).transform(lambda minibatch: (lock, minibatch)[1])
    with pytest.raises(pickle.PicklingError, match=r"Transformer, stage 2, can't be sent .*lock.*worker='thread'$"):
        pack_work(WorkerTask(seeds(6), (stage,)))
