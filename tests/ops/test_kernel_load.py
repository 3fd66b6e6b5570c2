import torch

from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.store import watch_kernels
from graphfeed.ops.cpu.rows.gather_small import gather_small
from graphfeed.ops.kernel_load import KernelLoad


def test_a_kernel_says_once_what_it_was_loaded_for() -> None:
    gather_small(torch.arange(4), torch.tensor([2]), torch.empty(1, dtype=torch.int32))
    fresh, loads = Kernel(gather_small.function), list[KernelLoad]()
    with watch_kernels(loads.append):
        for _ in range(2):
            fresh(torch.arange(4), torch.tensor([2]), torch.empty(1, dtype=torch.int32))
    (load,) = loads
    assert load.kernel == "rows.gather_small.gather_small"
    assert load.seconds > 0
    assert not load.compiled
