"""Kernels as Python callables."""

import time
from array import array
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import cached_property, update_wrapper
from typing import Any, NamedTuple, TypeVar

import numpy as np

from graphfeed.ops.cpu.compiler.signature import INTERPRETED, WORD, Block, Signature, flatten_arguments

CALL = CFUNCTYPE(c_int64, c_void_p)
"""Type of machine code: it takes the address of a block of words. ctypes releases the GIL while it runs."""


STARTED = time.time()
"""Time at which this process began to import kernels."""
DEVICE_FUNCTIONS: dict[Any, bool] = {}
"""Functions that kernels may call, and whether they are registered with Numba."""


class MachineCode(NamedTuple):
    """Machine code of a kernel for one choice of dtypes, linked into this process."""

    address: int
    run: Callable[[int], int]


class Kernel:
    """A function of tensors, NumPy arrays, `Block`s and numbers, compiled at the first call with a choice of dtypes."""

    __name__: str
    __module__: str

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.function = function
        self.codes: dict[tuple[str, ...], MachineCode] = {}
        self.runs: dict[tuple[Any, ...], Callable[[int], int]] = {}

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.function)  # not when it is imported, because most processes need few kernels

    @property
    def name(self) -> str:
        """Its module, relative to `graphfeed.ops.cpu`, and function name, such as "structure.compact.compact"."""
        return f"{self.__module__.removeprefix('graphfeed.ops.cpu.')}.{self.__name__}"

    def code(self, dtypes: tuple[str, ...]) -> MachineCode:
        """Return the machine code for a choice of dtypes, loaded from disk or compiled if necessary."""
        if dtypes not in self.codes:
            from graphfeed.ops.cpu.compiler.store import load_or_compile  # noqa: PLC0415 - imports this module

            load_or_compile(self, dtypes)
        return self.codes[dtypes]

    def __call__(self, *arguments: Any) -> Any:
        if INTERPRETED:
            return self.interpret(*arguments)
        words: list[int] = []
        key: list[Any] = []
        kept: list[Any] = []
        flatten_arguments(arguments, words, key, kept)
        run = self.runs.get(tuple(key))
        if run is None:
            # The arguments are checked once for each choice of dtypes.
            run = self.runs[tuple(key)] = self.code(self.signature.choose(arguments)).run
        # `block` and `kept` must live until the call returns: machine code gets only addresses.
        block = array("Q", words)
        result = run(block.buffer_info()[0])
        return None if self.signature.returns is None else self.signature.returns(result)

    def call_words(self, dtypes: tuple[str, ...], words: Sequence[int]) -> Any:
        """Call with the words of valid arguments: a number, or the address and length of a one-dimensional array.

        This takes a third of the time of a call with arrays, which the caller keeps alive.
        """
        if INTERPRETED:
            return self.interpret(*self.signature.arguments_of(dtypes, words))
        block = array("Q", words)
        result = self.code(dtypes).run(block.buffer_info()[0])
        return None if self.signature.returns is None else self.signature.returns(result)

    def interpret(self, *arguments: Any) -> Any:
        """Run the kernel as Python. Integers overflow silently, as in machine code."""
        kinds = (kind for _, kind in self.signature.parameters)
        with np.errstate(all="ignore"):
            result = self.function(*map(as_python, arguments, kinds))
        return None if self.signature.returns is None else self.signature.returns(result)


def as_python(value: Any, kind: Any) -> Any:
    """Convert an argument for a kernel that runs as Python."""
    if isinstance(value, Block):
        value = value.values
    if isinstance(value, tuple):
        return type(value)(*(as_python(part, None) for part in value))
    if kind is np.uint64:
        return np.uint64(int(value) & WORD)
    if kind in (int, bool):
        return kind(value)
    return value.numpy() if hasattr(value, "data_ptr") else value


Function = TypeVar("Function", bound=Callable[..., Any])


def device_function(function: Function) -> Function:
    """Register a function that kernels may call. It is inlined into them, and stays an ordinary function in Python."""
    DEVICE_FUNCTIONS[function] = False
    return function
