import torch

from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.store import watch_kernels
from graphfeed.ops.cpu.structure.counting_sort import count_edges
from graphfeed.ops.kernel_load import KernelLoad


def test_a_kernel_says_once_what_it_was_loaded_for() -> None:
    count_edges(torch.tensor([2]), torch.zeros(4, dtype=torch.int64))
    fresh, loads = Kernel(count_edges.function), list[KernelLoad]()
    with watch_kernels(loads.append):
        for _ in range(2):
            fresh(torch.tensor([2]), torch.zeros(4, dtype=torch.int64))
    (load,) = loads
    assert load.kernel == "structure.counting_sort.count_edges"
    assert load.seconds > 0
    assert not load.compiled
