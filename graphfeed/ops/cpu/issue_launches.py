"""Kernel that launches kernels on a GPU: many calls of the driver without returning to the interpreter."""

from graphfeed.ops.cpu.jit import Int64s, kernel, launch_kernel


@kernel
def issue_launches(
    words: Int64s, patches: Int64s, bases: Int64s, calls: Int64s, launch: int, threads: int, stream: int
) -> int:
    """Write some words of the arguments, then launch all kernels, until one fails; return the driver's status.

    A patch is the place of a word, that of its base, and what is added to the base. A call is the address of a kernel,
    its number of blocks, and the address of the description of its arguments.
    """
    for place in range(0, patches.size, 3):
        words[patches[place]] = bases[patches[place + 1]] + patches[place + 2]
    for place in range(0, calls.size, 3):
        status = launch_kernel(launch, calls[place], calls[place + 1], threads, stream, calls[place + 2])
        if status != 0:
            return status
    return 0
