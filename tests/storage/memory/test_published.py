import pickle

import pytest
import torch

from graphfeed.storage.memory.published import Published
from tests.ops.emulated_cuda import Cuda, EmulatedCuda


def test_there_is_nothing_to_wait_for_on_a_cpu() -> None:
    assert Published.on_gpu([None, torch.zeros(2)]) == []


def test_what_another_process_gets_is_there() -> None:
    other = pickle.loads(pickle.dumps(Published(None)))
    other.wait([torch.zeros(2)])


def test_another_stream_waits_and_keeps_the_memory(cuda: Cuda) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a device does not tell who waits")
    with cuda.running():
        mine, other = torch.cuda.Stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(mine):
            made = torch.zeros(3, device="meta")
            (published,) = Published.on_gpu([made])
        with torch.cuda.stream(other):
            published.wait([made])
            total = made + 1
        pickle.loads(pickle.dumps(published)).wait([made])
        del made
        with torch.cuda.stream(mine):
            published.wait([])
        other.synchronize()
        assert total.tolist() == [1, 1, 1]
