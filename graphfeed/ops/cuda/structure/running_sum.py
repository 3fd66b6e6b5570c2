"""Running sums and initial values on a GPU, by kernels that can be recorded or, otherwise, by torch's operations."""

import torch

from graphfeed.ops.cuda.launch import THREADS, launch, upload
from graphfeed.ops.memory import buffers

LEAST_CHUNK = 8 * THREADS
"""Minimum number of values of a block, unless there are fewer."""
MOST_CHUNKS = 1024
"""Each block adds up the sums of the chunks before its own."""


def add_up(values: torch.Tensor) -> torch.Tensor:
    """Replace int64 values by their running sums; return them."""
    if buffers.RECORDER.get() is None:
        return values.cumsum_(0)  # equal, and one call instead of two launches
    count = values.numel()
    chunk = max(-(-count // MOST_CHUNKS), LEAST_CHUNK)
    chunks, sums = -(-count // chunk), None
    if chunks > 1:
        sums = buffers.empty(chunks, torch.int64, values.device)
        launch("sum_chunks", chunks * THREADS, values, count, chunk, sums)
    launch("add_up_chunks", chunks * THREADS, values, count, chunk, sums)
    return values


def filled(size: int, value: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a tensor filled with 0 or -1, whose size in bytes is a multiple of eight."""
    if buffers.RECORDER.get() is None:
        return torch.full((size,), value, dtype=dtype, device=device)
    made = buffers.empty(size, dtype, device)
    words = made.view(torch.int64)
    launch("set_values", words.numel(), None, value, words, words.numel())
    return made


def copied(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return int64 numbers of the CPU on a device, where kernels may change them."""
    there, recorder = upload(values, device), buffers.RECORDER.get()
    if recorder is None:
        return there
    recorder.kept.append(there)
    made = buffers.empty(values.numel(), values, device)
    launch("set_values", made.numel(), there, 0, made, made.numel())
    return made
