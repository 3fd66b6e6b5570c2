"""Records of kernels that a process compiled or loaded."""

from typing import NamedTuple


class KernelLoad(NamedTuple):
    """The first call of a kernel with some argument types in a process, which compiles or loads it."""

    kernel: str
    """Its module and name, such as "structure.compact.compact"."""
    signature: str
    """The types of its arguments."""
    seconds: float
    compiled: bool
    """Whether it was compiled, rather than loaded from disk."""
