"""Reused buffers: a block has one user at a time, and what is idle is bounded."""

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from mmap import PAGESIZE
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed import ops
from graphfeed.ops.memory import POOL, buffers

LARGE = 1 << 17
SIZES = count(3 * LARGE, LARGE)
"""Sizes of blocks of which the process's pool has none."""


def test_tensors_and_arrays_are_as_asked_for() -> None:
    shapes: list[int | tuple[int, ...]] = [0, 7, (0,), (3, 0), (5, 3), (LARGE,), (LARGE, 2), (2, LARGE, 3), ()]
    for shape, dtype in product(shapes, (torch.bool, torch.bfloat16, torch.int32, torch.complex128)):
        wanted = torch.Size([shape] if isinstance(shape, int) else shape), dtype, True
        for tensor in (buffers.empty(shape, dtype), buffers.empty_long_lived(shape, dtype, buffers.CPU)):
            assert (tensor.shape, tensor.dtype, tensor.is_contiguous()) == wanted
    for size, kind in product((0, 10, LARGE), (np.uint8, np.int64)):
        array = POOL.empty((size, 3), kind)
        assert (array.shape, array.dtype, array.flags.c_contiguous) == ((size, 3), np.dtype(kind), True)


def cycle_of(tensor: torch.Tensor) -> list[Any]:
    cycle: list[Any] = [tensor]
    cycle.append(cycle)
    return cycle


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda tensor: tensor,
    "slice": lambda tensor: tensor[5:9],
    "row": lambda tensor: tensor.view(-1, 8)[3],
    "dtype": lambda tensor: tensor.view(torch.int64),
    "slice of a slice": lambda tensor: tensor[10:][3:4],
    "detached": lambda tensor: tensor.detach(),
    "storage": lambda tensor: tensor.untyped_storage(),
    "parts": lambda tensor: tensor.tensor_split(100),
    "tensor of the array": lambda tensor: torch.from_numpy(tensor.numpy()[3:5]),
    "memory": lambda tensor: tensor.numpy().data,
    "dlpack": lambda tensor: torch.utils.dlpack.from_dlpack(tensor),
    "dlpack of the array": lambda tensor: np.from_dlpack(tensor),
    "closure": lambda tensor: lambda: tensor,
    "cycle": cycle_of,
}


def test_a_block_is_not_used_again_while_anything_views_it_and_then_it_is() -> None:
    for name, view in VIEWS.items():
        size = next(SIZES)
        tensor = torch.from_numpy(POOL.empty(size, np.uint8))
        address = tensor.data_ptr()
        kept = view(tensor)
        del tensor
        gc.collect()
        assert POOL.empty(size, np.uint8).ctypes.data != address, name
        del kept
        gc.collect()
        found = [POOL.empty((size // 16, 2), np.float64), POOL.empty(size, np.uint8)]
        assert address in {array.ctypes.data for array in found}, name


def test_what_is_idle_is_bounded() -> None:
    pool = type(POOL)(idle_bytes=2 * LARGE)
    arrays = [pool.empty(LARGE, np.uint8) for _ in range(5)]
    addresses = {array.ctypes.data for array in arrays}
    arrays.clear()
    assert pool.idle == 2 * LARGE
    assert pool.empty(LARGE, np.uint8).ctypes.data in addresses


def test_threads_never_share_a_block() -> None:
    """Each writes its own number, keeps a part for a while, and checks that the number is still there."""

    def work(number: int) -> int:
        kept: list[Any] = []
        wrong = 0
        for turn in range(300):
            array = POOL.empty(LARGE + turn % 3 * (1 << 15), np.uint8)
            array.fill(number)
            kept.append(array[turn : turn + 1000])
            if len(kept) > 4:
                wrong += int((kept.pop(0) != number).sum())
        return wrong + sum(int((part != number).sum()) for part in kept)

    with ThreadPoolExecutor(8) as executor:
        assert list(executor.map(work, range(8))) == [0] * 8


def test_threads_never_share_the_map_of_a_graph_s_nodes() -> None:
    given = [(torch.arange(5) * step, torch.arange(0, 2000, step)) for step in range(1, 9)]

    def number_nodes(own: tuple[torch.Tensor, torch.Tensor]) -> list[list[int]]:
        return [part.tolist() for part in ops.compact(*own, num_nodes=5000)]

    expected = list(map(number_nodes, given))
    with ThreadPoolExecutor(8) as executor:
        assert all(list(executor.map(number_nodes, given)) == expected for _ in range(30))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGESIZE


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says how much memory a process has")
def test_a_thousand_mini_batches_need_no_more_memory_than_a_hundred() -> None:
    """They have 500 KB each."""
    graph = gf.from_coo(torch.randint(5000, (2, 100_000)), 5000)
    items = gf.ItemSampler(gf.ItemSet(torch.arange(4000).repeat(50), names="seeds"), batch_size=200)
    found = [resident() for number, _ in enumerate(items.sample_neighbor(graph, [10, 10])) if number in (100, 999)]
    assert found[1] - found[0] < 64 << 20
