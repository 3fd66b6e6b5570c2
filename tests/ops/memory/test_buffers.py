import gc
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.mapped_memory import mapping_of
from graphfeed.ops.memory import buffers, shared_memory
from graphfeed.ops.memory.buffers import SMALL_BYTES, BufferPool, NodeMaps
from tests.garbage import AtItsEnd, ends

LARGE = 4 * SMALL_BYTES


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> BufferPool:
    pool = BufferPool()
    monkeypatch.setattr(buffers, "POOL", pool)
    return pool


def test_tensors_and_arrays_are_as_asked_for(pool: BufferPool) -> None:
    shapes: list[int | tuple[int, ...]] = [0, 7, (0,), (3, 0), (0, 3), (5, 3), (LARGE,), (LARGE, 2), (2, LARGE, 3), ()]
    dtypes = [torch.bool, torch.bfloat16, torch.int32, torch.float64, torch.complex128]
    for shape, dtype in product(shapes, dtypes):
        tensor = buffers.empty(shape, dtype)
        wanted = torch.Size([shape] if isinstance(shape, int) else shape), dtype, True
        assert (tensor.shape, tensor.dtype, tensor.is_contiguous()) == wanted
        assert buffers.empty(shape, like=tensor).dtype == dtype
    for count, kind in product((0, 10, LARGE), (np.uint8, np.int32, np.int64)):
        array = pool.empty((count, 3), kind)
        assert (array.shape, array.dtype) == ((count, 3), np.dtype(kind))
        assert pool.empty(count, kind).shape == (count,)
        assert array.flags.c_contiguous
        assert array.flags.writeable
    for dtype, size in product((torch.int32, torch.float64), (0, 3)):
        made = buffers.empty_long_lived(size, dtype, buffers.CPU)
        assert (made.shape, made.dtype) == ((size,), dtype)


@given(st.integers(SMALL_BYTES, 1 << 26))
def test_blocks_are_at_most_a_quarter_too_large(size: int) -> None:
    pool = BufferPool()
    pool.empty(size, np.uint8)
    assert size <= pool.idle <= size * 5 / 4


def test_arrays_of_similar_sizes_take_turns_in_few_blocks() -> None:
    pool = BufferPool()
    for size in range((1 << 16) + 1, (1 << 17) + 1, 500):
        pool.empty(size, np.uint8)
    assert pool.idle == (5 + 6 + 7 + 8) << 14


def test_a_block_is_used_again_when_its_tensor_is_gone(pool: BufferPool) -> None:
    tensor = buffers.empty(LARGE, torch.uint8)
    address = tensor.data_ptr()
    other = buffers.empty(LARGE, torch.uint8)
    assert other.data_ptr() != address
    del tensor
    assert pool.idle == LARGE
    again = buffers.empty(LARGE, torch.uint8)
    assert again.data_ptr() == address
    assert pool.idle == 0


def test_a_block_serves_other_shapes_and_dtypes_of_its_size(pool: BufferPool) -> None:
    tensor = buffers.empty(LARGE, torch.uint8)
    address = tensor.data_ptr()
    del tensor
    assert buffers.empty((LARGE // 16 - 1, 2), torch.float64).data_ptr() == address


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda tensor: tensor,
    "slice": lambda tensor: tensor[5:9],
    "row": lambda tensor: tensor.view(-1, 8)[3],
    "element": lambda tensor: tensor[7],
    "dtype": lambda tensor: tensor.view(torch.int64),
    "slice of a slice": lambda tensor: tensor[10:][3:4],
    "detached": lambda tensor: tensor.detach(),
    "storage": lambda tensor: tensor.untyped_storage(),
    "parts": lambda tensor: tensor.tensor_split(100),
    "array": lambda tensor: tensor.numpy(),
    "slice of the array": lambda tensor: tensor.numpy()[3:5],
    "tensor of the array": lambda tensor: torch.from_numpy(tensor.numpy()[3:5]),
    "memory": lambda tensor: tensor.numpy().data,
    "dlpack": lambda tensor: torch.utils.dlpack.from_dlpack(tensor),
    "dlpack of the array": lambda tensor: np.from_dlpack(tensor),
    "closure": lambda tensor: lambda: tensor,
}


def test_a_block_is_not_used_again_while_anything_views_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, view in VIEWS.items():
        monkeypatch.setattr(buffers, "POOL", pool := BufferPool())
        tensor = buffers.empty(LARGE, torch.uint8)
        address = tensor.data_ptr()
        kept = view(tensor)
        del tensor
        gc.collect()
        assert pool.idle == 0, name
        assert buffers.empty(LARGE, torch.uint8).data_ptr() != address, name
        del kept
        gc.collect()
        assert pool.idle == 2 * LARGE, name


def test_a_block_in_a_cycle_comes_back_with_the_garbage(pool: BufferPool) -> None:
    cycle: list[Any] = [buffers.empty(LARGE, torch.uint8)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert pool.idle == LARGE


def test_what_lies_idle_is_bounded() -> None:
    pool = BufferPool(idle_bytes=2 * LARGE)
    arrays = [pool.empty(LARGE, np.uint8) for _ in range(5)]
    arrays.clear()
    assert pool.idle == 2 * LARGE


def test_small_arrays_are_not_pooled(pool: BufferPool) -> None:
    pool.empty(SMALL_BYTES - 1, np.uint8)
    assert pool.idle == 0


def test_a_pool_is_freed_with_its_last_block() -> None:
    pool = BufferPool()
    array = pool.empty(LARGE, np.uint8)
    gone = weakref.ref(pool)
    del pool
    array[:] = 1
    del array
    assert gone() is None


def test_threads_never_share_a_block(pool: BufferPool) -> None:
    """Each writes its own number, keeps a part for a while, and looks whether the number is still there."""

    def work(number: int) -> int:
        kept: list[torch.Tensor] = []
        wrong = 0
        for turn in range(300):
            tensor = buffers.empty(LARGE + turn % 3 * SMALL_BYTES, torch.uint8)
            tensor.fill_(number)
            kept.append(tensor[turn : turn + 1000])
            if turn % 50 == 0:
                time.sleep(0.001)
            if len(kept) > 4:
                wrong += int((kept.pop(0) != number).sum())
        return wrong + sum(int((part != number).sum()) for part in kept)

    with ThreadPoolExecutor(8) as executor:
        assert list(executor.map(work, range(8))) == [0] * 8
    assert pool.idle == sum(block.nbytes for blocks in pool.blocks.values() for block in blocks)


def test_a_block_may_come_back_in_another_thread(pool: BufferPool) -> None:
    tensors = [buffers.empty(LARGE, torch.uint8)]
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert pool.idle == LARGE


def test_maps_hold_minus_one_and_are_used_again() -> None:
    maps = NodeMaps()
    with maps.leased_map(100) as first:
        assert first is not None
        assert first.dtype == np.int32
        assert (first == -1).all()
    with maps.leased_map(100) as second, maps.leased_map(100) as third, maps.leased_map(50) as other:
        assert second is first
        assert third is not first
        assert other is not None
        assert other.size == 50
    assert maps.used_bytes == 4 * 250


def test_a_map_of_a_kernel_that_failed_is_thrown_away() -> None:
    maps = NodeMaps()

    def fail() -> None:
        with maps.leased_map(100) as node_map:
            assert node_map is not None
            node_map[3] = 7
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert maps.used_bytes == 0
    with maps.leased_map(100) as node_map:
        assert node_map is not None
        assert (node_map == -1).all()


def test_maps_keep_their_limit() -> None:
    maps = NodeMaps(limit_bytes=800)
    with maps.leased_map(201) as too_large:
        assert too_large is None
    with maps.leased_map(100) as first, maps.leased_map(100) as second, maps.leased_map(1) as third:
        assert first is not None
        assert second is not None
        assert third is None
    assert maps.used_bytes == 800


def test_idle_maps_make_room() -> None:
    maps = NodeMaps(limit_bytes=800)
    with maps.leased_map(150):
        pass
    with maps.leased_map(200) as node_map:
        assert node_map is not None
    assert maps.used_bytes == 800
    with maps.leased_map(100) as node_map:
        assert node_map is not None
    assert maps.used_bytes == 400


def test_threads_never_share_a_map() -> None:
    maps = NodeMaps(limit_bytes=4 * 1000 * 5)

    def work(number: int) -> bool:
        alone = True
        for _ in range(200):
            with maps.leased_map(1000) as node_map:
                if node_map is None:
                    continue
                alone &= bool((node_map == -1).all())
                node_map[:] = number
                alone &= bool((node_map == number).all())
                node_map[:] = -1
        return alone

    with ThreadPoolExecutor(8) as executor:
        assert all(executor.map(work, range(8)))
    assert maps.used_bytes <= maps.limit_bytes
    assert maps.used_bytes == sum(4 * 1000 for _ in maps.idle[1000])


class Collecting(defaultdict[int, list[Any]]):
    """Collects garbage wherever it makes a list, as the interpreter may."""

    def __missing__(self, key: int) -> list[Any]:
        gc.collect()
        return super().__missing__(key)


def test_a_finalizer_borrows_a_map_while_a_map_is_borrowed() -> None:
    maps = NodeMaps(limit_bytes=800)
    maps.idle = Collecting(list)
    sizes: list[int | None] = []

    def borrow(num_nodes: int) -> None:
        with maps.leased_map(num_nodes) as node_map:
            sizes.append(None if node_map is None else node_map.size)

    def borrow_in_a_finalizer_too() -> None:
        AtItsEnd(lambda: borrow(150))
        borrow(100)

    assert ends(borrow_in_a_finalizer_too)
    assert sizes == [150, 100]
    assert maps.used_bytes == 4 * sum(size * len(idle) for size, idle in maps.idle.items()) == 400


@pytest.mark.usefixtures("small_is_shared")
def test_what_lasts_lies_in_shared_memory_if_it_is_large_and_not_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "SHARED_BYTES", 80)

    def is_shared(count: int, private: bool = False) -> bool:
        made = buffers.empty_long_lived((count, 2), torch.int32, buffers.CPU, private=private)
        assert made.shape == (count, 2)
        return mapping_of(made.data_ptr(), made.data_ptr() + made.nbytes) is not None

    assert [is_shared(10), is_shared(9), is_shared(11), is_shared(10, private=True)] == [True, False, True, False]
