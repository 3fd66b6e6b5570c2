"""Tensors over a mapped file are sent to other processes as their place in that file, and never copied.

The system's table of mappings says which file lies behind an address, whoever mapped it: graphfeed, NumPy, torch or
another library. Linux only; elsewhere no tensor is known to lie in a file.
"""

import mmap
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from graphfeed.ops.memory import TABLE, MemoryFile, Region, map_privately, mapping_around, read_regions
from graphfeed.storage.memory.shared import Handle, find_handle

DETAILED_TABLE = Path("/proc/self/smaps")
"""Also tells how much of each mapping was written to. It takes the system longer: up to a second per 100 GB in use."""
LEAST_MAPPED = 1 << 22
"""Smaller tensors are not looked for in the table when it is asked how much lies in files."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where a tensor lies in a file."""

    path: str
    inode: int
    size: int
    modified_ns: int
    """When the file was last written to."""
    shared: bool
    """Whether writes to the tensor go to the file."""
    offset: int
    num_bytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def open(self) -> torch.Tensor:
        """Map the tensor; writes go to the file if those of the sender do, and otherwise stay in this process.

        Raises:
            FileNotFoundError: The file can't be opened.
            RuntimeError: Another file lies there since the tensor was sent, or the file has another size.

        Warns:
            UserWarning: The file was written to or touched since then.
        """
        advice = "leave a file as it is while it is in use, and write new data to another one"
        # Opened for writing only if writes of the sender reach the file, too: then both see each other's.
        try:
            file = MemoryFile(os.open(self.path, os.O_RDWR if self.shared else os.O_RDONLY))
        except OSError as error:
            raise FileNotFoundError(
                f"{self.path}, from which a tensor was mapped, can't be opened ({error.strerror}); {advice}"
            ) from error
        found = os.fstat(file.descriptor)
        if (found.st_ino, found.st_size) != (self.inode, self.size):
            raise RuntimeError(
                f"{self.path} has changed since it was sent: it was file {self.inode} of {self.size} bytes, and is "
                f"file {found.st_ino} of {found.st_size} bytes; {advice}"
            )
        # The sender maps the same file and sees what was written to it, too. Since the time does not tell whether
        # the bytes are other ones, it is no reason to stop: a worker may take the place of a lost one at any time.
        # Where the processes share the file to write to it, it is expected.
        if not self.shared and found.st_mtime_ns != self.modified_ns:
            warnings.warn(f"{self.path} was written to or touched since it was sent; {advice}", stacklevel=2)
        # A mapping begins at a multiple of the system's pages; the tensor begins somewhere in the first one.
        before = self.offset % mmap.ALLOCATIONGRANULARITY
        map_bytes = mmap.mmap if self.shared else map_privately
        memory = map_bytes(file.descriptor, before + self.num_bytes, offset=self.offset - before)
        dtype: torch.dtype = getattr(torch, self.dtype)
        flat = torch.frombuffer(memory, dtype=dtype, count=self.num_bytes // dtype.itemsize, offset=before)
        return flat.as_strided(self.shape, self.strides)


def find_places(tensors: Sequence[torch.Tensor], fewest_bytes: int = 0) -> list[FilePlace | Handle | None]:
    """Return where other processes find each tensor.

    Args:
        tensors: Tensors on the CPU.
        fewest_bytes: Those of no more bytes are looked for in shared memory, but not in files.

    Returns:
        Where it lies in shared memory or in a file; None if it lies in neither, or not as the file has it.
    """
    places: list[FilePlace | Handle | None] = [find_handle(tensor) for tensor in tensors]
    asked = [number for number, place in enumerate(places) if place is None and tensors[number].nbytes > fewest_bytes]
    regions = read_regions(TABLE) if asked else []
    if any(regions_of(tensors[number], regions) for number in asked):
        # The detailed table is slow to read: it is asked only if the short one shows that some tensor lies in a file.
        regions = read_regions(DETAILED_TABLE)
        for number in asked:
            places[number] = find_place(tensors[number], regions)
    return places


def find_in_files(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return those of some CPU tensors, unless they are small, that lie in mapped files rather than in memory."""
    large = [tensor for tensor in tensors if tensor.nbytes > LEAST_MAPPED and find_handle(tensor) is None]
    regions = read_regions(TABLE) if large else []
    return [tensor for tensor in large if regions_of(tensor, regions)]


def num_bytes_spanned(tensor: torch.Tensor) -> int:
    # Strides may be any: what counts is how far the last value lies from the first.
    steps = sum((count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()


def regions_of(tensor: torch.Tensor, regions: Sequence[Region]) -> list[Region]:
    # Empty unless the regions around the tensor show one part of one file.
    start = tensor.data_ptr()
    stop = start + num_bytes_spanned(tensor)
    return [region for region in mapping_around(start, stop, regions) if start < region.stop and region.start < stop]


def find_place(tensor: torch.Tensor, regions: Sequence[Region]) -> FilePlace | None:
    """Return where a CPU tensor lies in a file; None if it does not, or not as the file has it."""
    # A conjugate or negative view shows other values than the bytes.
    if tensor.numel() == 0 or tensor.is_conj() or tensor.is_neg():
        return None
    covered = regions_of(tensor, regions)
    # What was written to a private mapping is not in the file.
    if not covered or any(region.written for region in covered if not region.shared):
        return None
    region = covered[0]
    shared = region.shared and region.writable
    try:
        found = os.stat(region.path)
    except OSError:
        return None
    # Another file took the path meanwhile.
    if found.st_ino != region.inode:
        return None
    return FilePlace(
        path=region.path,
        inode=found.st_ino,
        size=found.st_size,
        modified_ns=found.st_mtime_ns,
        shared=shared,
        offset=region.offset + tensor.data_ptr() - region.start,
        num_bytes=num_bytes_spanned(tensor),
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        strides=tensor.stride(),
    )
