"""Pinned memory that is freed while a kernel is still to read it.

All three were wrong once: torch's allocator hands pinned memory out again as soon as it is freed, also while a kernel
of others reads it.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch

import graphfeed as gf
from graphfeed.ops import gather_rows
from graphfeed.ops.arguments import mark_below
from tests.stand_ins.emulated_cuda import Cuda, EmulatedCuda, device_of
from tests.stand_ins.late_streams import running

WIDTH = 8


class Work(NamedTuple):
    """A device, and how much it has to do before and in a kernel."""

    device: torch.device
    rows: int
    square: int
    products: int


@pytest.fixture
def work(cuda: Cuda) -> Iterator[Work]:
    """Return 16 MiB to read, behind some 100 ms of work; little on a stand-in."""
    is_emulated = isinstance(cuda, EmulatedCuda)
    with running(cuda):
        yield Work(torch.device(device_of(cuda)), *((64, 2, 1) if is_emulated else (1 << 18, 4096, 100)))


Freed = tuple[torch.Tensor, torch.Tensor, Callable[[], object]]
"""A kernel's result from pinned memory, the right one, and a function that frees that memory."""


def temporary(work: Work, numbered: torch.Tensor, here: torch.Tensor, ids: torch.Tensor, begin: Any) -> Freed:
    """Read a tensor that the user has pinned, without keeping a reference to it."""
    held = [numbered.pin_memory()]
    begin()
    return gather_rows(held[0], ids), numbered[here], held.clear


def updated(work: Work, numbered: torch.Tensor, here: torch.Tensor, ids: torch.Tensor, begin: Any) -> Freed:
    """Read a pinned feature whose rows are replaced."""
    feature = gf.TorchBasedFeature(numbered.clone()).pin_memory_()
    begin()
    return feature.read(ids), numbered[here], lambda: feature.update(numbered + 1)


def dropped(work: Work, numbered: torch.Tensor, here: torch.Tensor, ids: torch.Tensor, begin: Any) -> Freed:
    """Sample all edges of a pinned graph that is dropped."""
    sources = numbered % work.rows
    indptr = torch.arange(work.rows + 1) * WIDTH
    held = [gf.fused_csc_sampling_graph(indptr, sources.view(-1).clone()).pin_memory_()]
    begin()
    hop: Any = held[0].sample_neighbors(ids, torch.tensor([-1]))
    return hop.sampled_csc.indices, sources[here].view(-1), held.clear


def read_freed(program: Callable[..., Freed], work: Work) -> tuple[bool, bool]:
    """Put other values where torch hands freed memory out; return if the read ones are right, and if it was in time."""
    matrix = torch.ones(work.square, work.square, device=work.device)
    numbered = torch.arange(work.rows * WIDTH).reshape(work.rows, WIDTH)

    def begin() -> None:
        for _ in range(work.products):
            torch.mm(matrix, matrix)

    same, late = True, False
    for _ in range(2):  # The first round compiles and allocates, for which the GPU is waited for.
        here = torch.randint(work.rows, (work.rows,))
        ids = here.to(work.device)
        mark_below(ids, work.rows)  # so that it is not waited for to check them
        found, expected, free = program(work, numbered, here, ids, begin)
        read: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        read.record()
        late = not read.query()
        free()
        others = torch.ones(work.rows * WIDTH, dtype=torch.int64).pin_memory()
        same &= torch.equal(found.cpu(), expected)
        del others
    return same, late


@pytest.mark.parametrize("program", [temporary, updated, dropped])
def test_what_is_freed_is_there_for_a_kernel_that_is_still_to_read_it(
    program: Callable[..., Freed], work: Work
) -> None:
    same, late = read_freed(program, work)
    assert same
    if not late:
        pytest.skip("the kernel was done before the memory was freed, which shows nothing")
