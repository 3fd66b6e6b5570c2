"""Programs: sequences of kernels that run in one call, which releases the GIL.

Returning to Python after each kernel would mean waiting for the GIL each time, for up to 5 ms.
"""

from array import array
from typing import Any

from graphfeed.ops.cpu.compiler.kernel import Kernel
from graphfeed.ops.cpu.compiler.signature import INTERPRETED, ArrayType, flatten_arguments

Int64s: Any = ArrayType("int64")


def call_code(_code: int, _block: int) -> int:
    """Call machine code with the address of its arguments. An instruction: `lowering.py` generates its code."""
    raise NotImplementedError("interpreted kernels have no machine code to call")


@Kernel
def run_steps(calls: Int64s, step: Int64s) -> int:
    """Call kernels, starting at a step, until one returns a nonzero code; return that code, or 0."""
    # Each kernel has two words: its address and that of its arguments.
    for number in range(step[0], calls.size // 2):
        result = call_code(calls[2 * number], calls[2 * number + 1])
        if result != 0:
            step[0] = number  # the caller reads which kernel has stopped
            return result
    step[0] = calls.size // 2
    return 0


class Program:
    """Kernels and their arguments, to be run in order, many times. A kernel that returns nonzero stops the program."""

    def __init__(self) -> None:
        self.steps: list[tuple[Kernel, tuple[Any, ...]]] = []
        """Kernels and arguments, which this list keeps alive."""
        self.words = array("Q")
        """Arguments of all kernels."""
        self.calls: list[tuple[Kernel, tuple[str, ...], int]] = []
        """Each kernel, its dtypes, and the byte offset of its arguments in `words`."""
        self.is_ready = False

    def add(self, kernel: Kernel, *arguments: Any) -> None:
        """Append a kernel and its arguments, which must match its signature."""
        words: list[int] = []
        kept: list[Any] = []
        flatten_arguments(arguments, words, [], kept)
        self.steps.append((kernel, (*arguments, kept)))
        self.calls.append((kernel, kernel.signature.choose(arguments), 8 * len(self.words)))
        self.words.extend(words)
        self.is_ready = False

    def run(self, first: int = 0) -> tuple[int, int]:
        """Run kernels, starting at `first`. Return code and index of the one that stopped, or 0 and their number."""
        if INTERPRETED:
            return self._interpret(first)
        if not self.is_ready:
            self._finish()
        self.step[0] = first
        result: int = self.code(self.address)
        return result, self.step[0]

    def _finish(self) -> None:
        """Load all kernels, and write the arguments of `run_steps`."""
        # Not earlier, because a growing array moves.
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
