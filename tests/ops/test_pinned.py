import gc
import subprocess
import sys
import weakref
from types import SimpleNamespace

import pytest
import torch

from graphfeed import ops
from graphfeed.ops import pinned


class Runtime:
    """Stands for CUDA's runtime."""

    def __init__(self, status: int = 0) -> None:
        self.status = status
        self.locked: dict[int, int] = {}

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        self.locked[address] = size
        return self.status

    def cudaHostUnregister(self, address: int) -> int:
        del self.locked[address]
        return 0


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    made = Runtime()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: made)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor, device=None: tensor.data_ptr() in made.locked)
    return made


class Owner:
    """Holds tensors."""


def test_memory_is_locked_as_long_as_its_owner_lives(runtime: Runtime) -> None:
    tensor, owner, other = torch.zeros(10), Owner(), Owner()
    ops.pin_in_place(tensor, owner)
    assert runtime.locked == {tensor.data_ptr(): 40}
    ops.pin_in_place(tensor, other)
    del other
    gc.collect()
    assert runtime.locked
    del owner
    gc.collect()
    assert runtime.locked == {}


def test_memory_is_kept_until_it_is_released(runtime: Runtime) -> None:
    owner = Owner()
    tensor = torch.zeros(10)
    memory = weakref.ref(tensor)
    ops.pin_in_place(tensor, owner)
    del tensor
    gc.collect()
    assert memory() is not None
    del owner
    gc.collect()
    assert memory() is None


def test_memory_is_released_at_exit() -> None:
    program = (
        "import torch\n"
        "from graphfeed import ops\n"
        "class Runtime:\n"
        "    def cudaHostRegister(self, *_): return 0\n"
        "    def cudaHostUnregister(self, _): print('released')\n"
        "class Owner: pass\n"
        "torch.cuda.is_available = lambda: True\n"
        "torch.cuda.cudart = Runtime\n"
        "owner = Owner()\n"
        "ops.pin_in_place(torch.zeros(3), owner)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout == "released\n"


def test_nothing_is_locked_for_no_values(runtime: Runtime) -> None:
    ops.pin_in_place(torch.zeros(0), Owner())
    assert runtime.locked == {}


def test_what_cuda_refuses_is_named(runtime: Runtime) -> None:
    runtime.status = 2
    with pytest.raises(RuntimeError, match=r"CUDA can't page-lock 40 bytes \(cudaHostRegister returned 2\)"):
        ops.pin_in_place(torch.zeros(10), Owner())


@pytest.mark.parametrize("tensor", [torch.zeros(4, 4)[:, 1], torch.zeros(4, device="meta")])
def test_other_memory_is_refused(tensor: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"only contiguous tensors on the CPU .* is on (cpu|meta) with strides"):
        ops.pin_in_place(tensor, Owner())


def test_without_a_device_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="pin_in_place needs a CUDA device"):
        ops.pin_in_place(torch.zeros(4), Owner())


def test_a_limit_of_threads_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "LIMIT", SimpleNamespace(threads=5))
    assert ops.max_uva_threads() == 5
    ops.set_max_uva_threads(7)
    assert ops.max_uva_threads() == 7
    with pytest.raises(ValueError, match="max_uva_threads must be 1 or more, but is 0"):
        ops.set_max_uva_threads(0)


@pytest.mark.gpu
def test_locked_memory_is_pinned_and_released() -> None:
    tensor, owner = torch.zeros(1 << 20), Owner()
    ops.pin_in_place(tensor, owner)
    assert tensor.is_pinned()
    del owner
    gc.collect()
    assert not tensor.is_pinned()
