"""Other CUDA streams use tensors of a stream only once they are ready."""

import pickle

import pytest
import torch

from graphfeed.storage.memory.stream_order import Published, StreamOrderedLock
from tests.stand_ins.emulated_cuda import Cuda, EmulatedCuda


def test_another_stream_waits_and_keeps_the_memory(cuda: Cuda) -> None:
    if not isinstance(cuda, EmulatedCuda):
        pytest.skip("a real device does not record which streams wait")
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


@pytest.mark.gpu
def test_what_one_stream_wrote_another_reads() -> None:
    held = torch.zeros(1 << 20, dtype=torch.int64, device="cuda")
    lock = StreamOrderedLock(held)
    for _ in range(200):
        with torch.cuda.stream(torch.cuda.Stream()), lock.acquire():  # type: ignore[no-untyped-call]
            held.add_(1)
    with lock.acquire():
        assert int(held.min()) == int(held.max()) == 200
