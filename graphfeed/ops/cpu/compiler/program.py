"""Kernels that run one after the other, in one call that releases the interpreter lock.

Coming back to Python after each would mean to wait for that lock each time, for up to 5 ms.
"""

from array import array
from collections.abc import Iterable
from typing import Any

from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.signature import INTERPRETED, ArrayType, lay_out

Int64s: Any = ArrayType("int64")
FEW = 3
"""Up to so many kernels are compiled by one process: a second one would take longer to start than to compile them."""


def call(_code: int, _block: int) -> int:
    """Call machine code with the address of its arguments: an instruction, see `lowering.py`."""
    raise NotImplementedError("without a compiler there is no machine code to call")


@Kernel
def run_steps(calls: Int64s, step: Int64s) -> int:
    """Call kernels from a step on until one returns another number than 0, and return that."""
    # Of each kernel there are two words, its address and that of its arguments.
    for number in range(step[0], calls.size // 2):
        result = call(calls[2 * number], calls[2 * number + 1])
        if result != 0:
            # So the caller learns which one stopped.
            step[0] = number
            return result
    step[0] = calls.size // 2
    return 0


def load_all(wanted: Iterable[tuple[Kernel, tuple[str, ...]]]) -> None:
    """Load machine code, or compile it, in several processes if much is missing."""
    new = dict.fromkeys((kernel, dtypes) for kernel, dtypes in wanted if dtypes not in kernel.codes)
    if not new:
        return
    from graphfeed.ops.cpu.compiler.ahead import load_together  # noqa: PLC0415 - these import this module
    from graphfeed.ops.cpu.compiler.store import is_kept  # noqa: PLC0415

    missing = [(kernel, dtypes) for kernel, dtypes in new if not is_kept(kernel, dtypes)]
    if len(missing) > FEW:
        load_together(missing)
    for kernel, dtypes in new:
        kernel.code(dtypes)


class Program:
    """Kernels with their arguments, to be run many times in order. One that doesn't return 0 stops the program."""

    def __init__(self) -> None:
        self.steps: list[tuple[Kernel, tuple[Any, ...]]] = []
        """They keep the arguments alive."""
        self.words = array("Q")
        """The arguments of all kernels."""
        self.calls: list[tuple[Kernel, tuple[str, ...], int]] = []
        """Each kernel, its dtypes, and where its arguments begin."""
        self.is_ready = False

    def add(self, kernel: Kernel, *arguments: Any) -> None:
        """Append a kernel, with arguments of the types that it takes."""
        words: list[int] = []
        kept: list[Any] = []
        lay_out(arguments, words, [], kept)
        self.steps.append((kernel, (*arguments, kept)))
        self.calls.append((kernel, kernel.signature.choose(arguments), 8 * len(self.words)))
        self.words.extend(words)
        self.is_ready = False

    def run(self, first: int = 0) -> tuple[int, int]:
        """Run the kernels from one on; return what the last one returned that ran, and its number."""
        if INTERPRETED:
            return self._interpret(first)
        if not self.is_ready:
            self._finish()
        self.step[0] = first
        result: int = self.code(self.address)
        return result, self.step[0]

    def _finish(self) -> None:
        """Lay out the arguments of the kernel that calls all others."""
        load_all([(run_steps, ()), *((kernel, dtypes) for kernel, dtypes, _ in self.calls)])
        # Only now: an array that grows moves.
        base = self.words.buffer_info()[0]
        self.ready = array("q")
        for kernel, dtypes, place in self.calls:
            self.ready.extend((kernel.code(dtypes).address, base + place))
        self.step = array("q", [0])
        self.block = array("q", [*self.ready.buffer_info(), *self.step.buffer_info()])
        self.code, self.address, self.is_ready = run_steps.code(()).run, self.block.buffer_info()[0], True

    def _interpret(self, first: int) -> tuple[int, int]:
        for number in range(first, len(self.steps)):
            kernel, (*arguments, _) = self.steps[number]
            result = kernel.interpret(*arguments)
            if result:
                return int(result), number
        return 0, len(self.steps)
