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

from graphfeed.ops.cuda.launch import BUFFER_POINTER, BUFFER_SIZE, NOTHING, as_argument, on_device, reading, start_all
from graphfeed.ops.memory import buffers
from graphfeed.ops.random import MASK

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

    def take(self, made: torch.Tensor) -> torch.Tensor:
        """Record an array that is allocated for a mini-batch; return it."""
        self.made.append(made)
        return made

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
        self.sizes = [0, 0]
        """The sizes in bytes of the two blocks of a mini-batch, for results and scratch."""
        starts: dict[int, tuple[int, int, int]] = {}

        def put(array: torch.Tensor, block: int) -> int:
            """Give an array a place in a block; return how many values it has room for."""
            room = -(-array.nbytes // APART) * APART
            starts[array.data_ptr()] = block, self.sizes[block], array.nbytes
            self.sizes[block] += room
            return room // array.itemsize

        if not all(part.numel() for part in results):
            raise LookupError("a result is empty")
        fixed = {part.data_ptr() for part in self.kept}
        if len(fixed.union(part.data_ptr() for part in given)) < len(fixed) + len(given):
            raise LookupError("arrays of the mini-batch share memory with the graph or each other")
        returned = sorted({part.data_ptr(): part for part in results}.values(), key=lambda part: str(part.dtype))
        self.parts: list[tuple[torch.dtype, int, int, list[int]]] = []
        """For each dtype of the results, the first byte and the end in their block, and the room for each result."""
        for dtype, own in itertools.groupby(returned, lambda part: part.dtype):
            first, rooms = self.sizes[0], [put(part, 0) for part in own]
            self.parts.append((dtype, first, self.sizes[0], rooms))
        places_of = {part.data_ptr(): place for place, part in enumerate(returned)}
        self.order = [places_of[part.data_ptr()] for part in results]
        """For each result, its place in the block."""
        for made in recorder.made:
            if made.data_ptr() not in starts:
                put(made, 1)
        starts |= {part.data_ptr(): (len(self.sizes) + place, 0, part.nbytes) for place, part in enumerate(given)}
        starts |= {part.data_ptr(): (-1, part.data_ptr(), part.nbytes) for part in self.kept}
        places = sorted(starts)

        def find(array: torch.Tensor) -> tuple[int, int]:
            """Return the block that has an array, or -1, and its offset there."""
            address = array.data_ptr()
            first = places[bisect.bisect_right(places, address) - 1]
            block, offset, size = starts.get(first, (0, 0, 0))
            if not first <= address < first + size:
                raise LookupError("a launch reads an array that belongs neither to the mini-batch nor to the graph")
            return block, offset + address - first

        def part_of(array: torch.Tensor) -> Part:
            return Part(*find(array), array.dtype, array.numel())

        self.launches = [
            launch._replace(words=[part_of(word) if isinstance(word, torch.Tensor) else word for word in launch.words])
            for launch in recorder.launches
        ]
        self.pack(len(self.sizes) + len(given))

    def pack(self, num_blocks: int) -> None:
        """Lay out the arguments of all launches, each followed by their size and the driver's description of both."""
        words, patches, starts = list[int](), list[int](), list[int]()
        for launch in self.launches:
            starts.append(len(words))
            for word in launch.words:
                if isinstance(word, Part) and word.block >= 0:
                    patches += len(words), word.block, word.offset
                elif isinstance(word, HopKey):
                    patches += len(words), num_blocks + word.place, 0
                words.append((word.offset if isinstance(word, Part) else word) & MASK)
            words += [8 * len(launch.words), BUFFER_POINTER, 0, BUFFER_SIZE, 0, 0]
        self.words, calls = array("Q", words), list[int]()
        first, _ = self.words.buffer_info()
        for launch, start in zip(self.launches, starts, strict=True):
            size = start + len(launch.words)
            self.words[size + 2], self.words[size + 4] = first + 8 * start, first + 8 * size
            calls += launch.function.ptr, launch.blocks, first + 8 * (size + 1)
        self.patches, self.calls = array("Q", patches), array("Q", calls)

    def run(self, given: Sequence[torch.Tensor], keys: Sequence[int], stream: torch.cuda.Stream) -> list[torch.Tensor]:
        """Repeat the launches on the current stream for another mini-batch; return the results, with unused values."""
        blocks = [torch.empty(size, dtype=torch.uint8, device=self.device) for size in self.sizes]
        self.start([*blocks, *given], keys, stream.cuda_stream)
        found = [
            part
            for dtype, first, end, rooms in self.parts
            for part in blocks[0][first:end].view(dtype).split_with_sizes(rooms)
        ]
        # With `data`, autograd doesn't count an in-place change of one result as a change of all.
        return [found[place].data for place in self.order]

    def start(self, blocks: Sequence[torch.Tensor], keys: Sequence[int], stream: int) -> None:
        """Repeat the launches with other blocks and keys."""
        bases = array("Q", [*(block.data_ptr() for block in blocks), *keys])
        before = *self.words.buffer_info(), *self.patches.buffer_info()
        # Another thread may repeat the same launches. The driver copies the words when it launches.
        reads = reading(self.over_the_bus, self.device) if self.over_the_bus else NOTHING
        with on_device(self.device), self.lock, reads:
            for part in self.over_the_bus:
                as_argument(part)  # which checks that it is still page-locked
            start_all([*before, *bases.buffer_info(), *self.calls.buffer_info()], self.device, stream)
