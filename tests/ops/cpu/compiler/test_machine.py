import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from graphfeed.ops.cpu.compiler import store
from graphfeed.ops.cpu.compiler.compile import compile_kernel
from graphfeed.ops.cpu.compiler.kernel import CALL, Kernel
from graphfeed.ops.cpu.compiler.machine import engine, link, processor
from tests.forked import held_elsewhere, in_child
from tests.ops.cpu.compiler.bare import printed
from tests.ops.cpu.compiler.kernels import add, anew, double, loads_of, was_compiled

RUN = """
import logging
import numpy as np
logging.disable()  # On a busy machine, compiling takes long enough to be said.
from graphfeed.ops.cpu.compiler.machine import processor
from tests.ops.cpu.compiler.kernels import scale
out = np.empty(3)
scale(np.array([1, -2, 3]), np.array([0.1, 0.2, 0.3]), out)
print(processor()[0], out.tobytes().hex())
"""


def test_an_object_file_becomes_a_function() -> None:
    block = np.array([-3, 5])
    assert CALL(link(*compile_kernel(add, ())))(block.ctypes.data) == 2


def test_threads_link_at_the_same_time() -> None:
    add(1, 1)  # so that it is on disk
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda number: anew(add)(number, 1), range(40))) == list(range(1, 41))


def test_threads_that_need_the_same_kernel_link_it_once() -> None:
    add(1, 1)  # so that it is on disk
    barrier = threading.Barrier(8, timeout=20)

    def call(fresh: Kernel, number: int) -> None:
        barrier.wait()
        assert fresh(number, 1) == number + 1

    def call_from_threads(fresh: Kernel) -> None:
        list(pool.map(partial(call, fresh), range(8)))

    with ThreadPoolExecutor(8) as pool:
        for _ in range(40):
            assert len(loads_of(partial(call_from_threads, anew(add)))) == 1


def test_a_lock_that_another_thread_held_is_free_in_a_forked_process(kept: Path) -> None:
    was_compiled(double)
    with held_elsewhere(store.COMPILING):
        assert in_child(lambda: was_compiled(double), seconds=20) == "False"


@pytest.mark.slow
def test_it_is_made_for_this_processor_unless_another_one_is_named(kept: Path) -> None:
    found = {name: printed(RUN, NUMBA_CPU_NAME=name).split() for name in ("generic", "")}
    names, results = zip(*found.values(), strict=True)
    assert names == ("generic", processor()[0])
    assert len(set(results)) == 1
    assert len(list(kept.glob("*.scale.*.code"))) == 2


def test_a_process_has_one_engine() -> None:
    assert engine() is engine()
