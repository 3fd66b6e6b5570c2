"""What is known of a kernel that a process compiled or loaded."""

from typing import NamedTuple


class KernelLoad(NamedTuple):
    """A kernel for some types of arguments, as a process first called it."""

    kernel: str
    """Its module and name, such as "structure.compact.compact"."""
    signature: str
    """The types of its arguments."""
    seconds: float
    compiled: bool
    """Whether it was compiled, rather than found on disk."""
