"""Launches of a mini-batch that are recorded once, and repeated with other seeds, keys and memory.

Mini-batches of the same request with as many seeds need the same launches. Only addresses and keys differ. A
`LaunchRecorder` records them while an operation runs. A `LaunchTable` repeats them: it writes the addresses and keys of
another mini-batch into the packed arguments, and calls the driver, without the Python code of the operation.
"""

import bisect
import itertools
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import torch

from graphfeed.ops.cuda.launch import DESCRIPTION, NOTHING, as_argument, on_device, pack, reading, start_all
from graphfeed.ops.memory import buffers

APART = 256
"""Arrays begin at multiples of this many bytes in their block, as torch's own do."""


class HopKey(int):
    """The key of a hop, which launches of other mini-batches replace."""

    place: int
    """Its place among the keys of all hops."""

    def __new__(cls, key: int, place: int) -> Self:
        own = super().__new__(cls, key)
        own.place = place
        return own


class Part(NamedTuple):
    """An array in one of the blocks of a mini-batch."""

    block: int
    offset: int
    """In bytes."""
    dtype: torch.dtype
    size: int


class Launch(NamedTuple):
    """A launch: a kernel, its blocks of threads, and a value, an array or a key for each word of its arguments."""

    function: Any
    blocks: int
    words: list[Any]


class LaunchRecorder:
    """Records the arrays and launches of an operation in one thread."""

    def __init__(self) -> None:
        self.made: list[torch.Tensor] = []
        """Arrays of the mini-batch, kept so that no address is used twice."""
        self.kept: list[torch.Tensor] = []
        """Arrays that all mini-batches read."""
        self.launches: list[Launch] = []

    @contextmanager
    def recording(self) -> Iterator[Self]:
        """Record allocations and launches of this thread."""
        before = buffers.RECORDER.set(self)
        try:
            yield self
        finally:
            buffers.RECORDER.reset(before)

    def note(
        self, function: Any, blocks: int, values: Sequence[int], with_width: Sequence[bool], arguments: Sequence[Any]
    ) -> None:
        """Record a launch: the words of its arguments, and the arguments, some of which have a second word."""
        words: list[Any] = []
        for has_width, given in zip(with_width, arguments, strict=True):
            own = values[len(words)]
            # An empty tensor is a null pointer.
            is_replaced = isinstance(given, HopKey) or (own != 0 and isinstance(given, torch.Tensor))
            words.append(given if is_replaced else own)
            words += values[len(words) : len(words) + has_width]
        self.launches.append(Launch(function, blocks, words))


class LaunchTable:
    """The launches of an operation, to be repeated.

    Args:
        recorder: Arrays and launches that were recorded while the operation ran.
        given: Arrays of the mini-batch that aren't allocated by the operation, such as the seeds.
        kept: Arrays that all mini-batches read, such as those of the graph.
        results: The arrays that the operation returns.

    Raises:
        LookupError: A launch has an array that is none of these, or one that is two of them, or a result is empty.
    """

    def __init__(
        self, recorder: LaunchRecorder, given: Sequence[torch.Tensor], kept: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor],
    ) -> None:  # fmt: skip
        self.device, self.lock, self.kept = given[0].device, threading.Lock(), [*kept, *recorder.kept]
        self.over_the_bus = [part for part in self.kept if part.is_cpu]
        stream = torch.cuda.current_stream(self.device)
        self.made, self.ready, self.streams = recorder.kept, stream.record_event(), {stream.cuda_stream}
        if not all(part.numel() for part in results):
            raise LookupError("a result is empty")
        fixed = {part.data_ptr() for part in self.kept}
        if len(fixed.union(part.data_ptr() for part in given)) < len(fixed) + len(given):
            raise LookupError("arrays of the mini-batch share memory with the graph or each other")
        returned = {part.data_ptr(): part for part in results}
        by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
        for part in returned.values():
            by_dtype.setdefault(part.dtype, []).append(part)
        scratch = [part for part in recorder.made if part.data_ptr() not in returned]
        starts: dict[int, tuple[int, int, int]] = {}
        """The block of each array by address, its first byte there, and its size."""
        self.rooms: list[tuple[torch.dtype, list[int]]] = []
        """For the blocks of a mini-batch, one for the results of each dtype and one for scratch: the room of arrays."""
        for block, (dtype, arrays) in enumerate([*by_dtype.items(), (torch.uint8, scratch)]):
            rooms = [-(-part.nbytes // APART) * APART for part in arrays]
            firsts = itertools.accumulate(rooms, initial=0)
            starts |= {
                part.data_ptr(): (block, first, part.nbytes) for part, first in zip(arrays, firsts, strict=False)
            }
            self.rooms.append((dtype, [room // dtype.itemsize for room in rooms]))
        self.sizes = [sum(rooms) for _, rooms in self.rooms]
        places = {part.data_ptr(): place for place, part in enumerate(itertools.chain(*by_dtype.values()))}
        self.order = [places[part.data_ptr()] for part in results]
        """For each result, its place in the blocks."""
        starts |= {part.data_ptr(): (len(self.sizes) + place, 0, part.nbytes) for place, part in enumerate(given)}
        starts |= {part.data_ptr(): (-1, part.data_ptr(), part.nbytes) for part in self.kept}
        addresses = sorted(starts)

        def part_of(array: torch.Tensor) -> Part:
            address = array.data_ptr()
            first = addresses[bisect.bisect_right(addresses, address) - 1]
            block, offset, size = starts.get(first, (0, 0, 0))
            if not first <= address < first + size:
                raise LookupError("a launch reads an array that belongs neither to the mini-batch nor to the graph")
            return Part(block, offset + address - first, array.dtype, array.numel())

        self.launches = [
            launch._replace(words=[part_of(word) if isinstance(word, torch.Tensor) else word for word in launch.words])
            for launch in recorder.launches
        ]
        self.pack(len(self.sizes) + len(given))

    def pack(self, num_blocks: int) -> None:
        """Pack the arguments of all launches, and note which words differ between mini-batches."""
        patches, values, place = list[int](), list[list[int]](), 0
        for launch in self.launches:
            for number, word in enumerate(launch.words, place):
                if isinstance(word, Part) and word.block >= 0:
                    patches += number, word.block, word.offset
                elif isinstance(word, HopKey):
                    patches += number, num_blocks + word.place, 0
            values.append([word.offset if isinstance(word, Part) else word for word in launch.words])
            place += len(launch.words) + DESCRIPTION
        self.words, described = pack(values)
        calls = [(own.function.ptr, own.blocks, at) for own, at in zip(self.launches, described, strict=True)]
        self.patches, self.calls = array("Q", patches), array("Q", itertools.chain(*calls))
        self.before = *self.words.buffer_info(), *self.patches.buffer_info()

    def run(self, given: Sequence[torch.Tensor], keys: Sequence[int], stream: torch.cuda.Stream) -> list[torch.Tensor]:
        """Repeat the launches on the current stream for another mini-batch; return the results, with unused values."""
        if stream.cuda_stream not in self.streams:
            stream.wait_event(self.ready)
            # Their memory is not reused while this stream reads them, even if the table is dropped.
            for part in self.made:
                part.record_stream(stream)
            self.streams.add(stream.cuda_stream)
        blocks = [
            torch.empty(size, dtype=dtype, device=self.device)
            for size, (dtype, _) in zip(self.sizes, self.rooms, strict=True)
        ]
        self.start([*blocks, *given], keys, stream.cuda_stream)
        found = [
            part
            for block, (_, rooms) in zip(blocks[:-1], self.rooms, strict=False)
            # Autograd doesn't count an in-place change of one of these parts as a change of all.
            for part in torch.unsafe_split_with_sizes(block, rooms)
        ]
        return [found[place] for place in self.order]

    def start(self, blocks: Sequence[torch.Tensor], keys: Sequence[int], stream: int) -> None:
        """Repeat the launches with other blocks and keys."""
        bases = array("Q", [*(block.data_ptr() for block in blocks), *keys])
        # Another thread may repeat the same launches. The driver copies the words when it launches.
        reads = reading(self.over_the_bus, self.device) if self.over_the_bus else NOTHING
        with on_device(self.device), self.lock, reads:
            for part in self.over_the_bus:
                as_argument(part)  # which checks that it is still page-locked
            start_all([*self.before, *bases.buffer_info(), *self.calls.buffer_info()], self.device, stream)
