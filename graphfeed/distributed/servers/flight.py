"""What a sampling server and its readers say to each other over Arrow Flight.

A reader asks for one mini-batch at a time, by a ticket in JSON: a line with the fingerprint of the stages that make it,
and one with the seed, the epoch and the index. The answer is a record batch, whose one column has the tensors as its
buffers. A reader without the pipeline first asks which mini-batches there are. Nothing is pickled.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import torch

from graphfeed.channels.codec import DTYPE_NAMES
from graphfeed.channels.frames import LARGEST_HEADER, Row, read_table
from graphfeed.datapipes.datapipe import Datapipe, Ranked
from graphfeed.datapipes.pipeline.traverse import traverse
from graphfeed.distributed.servers.minibatch_codec import pack_minibatch, unpack_minibatch
from graphfeed.loader.fingerprint import Fingerprint, take_fingerprint
from graphfeed.ops.arguments import brief
from graphfeed.ops.buffers import NUMPY_DTYPES, POOL, as_bytes
from graphfeed.ops.optional import import_optional
from graphfeed.ops.shared_memory import ALIGNMENT, Bytes, align
from graphfeed.storage.memory.shared import from_bytes

MADE, REFUSED, FAILED = "made", "refused", "failed"
"""What an answer holds: a mini-batch, the reason why none is made here, or the error of a stage."""

ABOUT = b"about "
"""What a question about the server's pipeline begins with."""

FORMAT = 2
"""The format of the answers. The first one had a column for each tensor."""
FORMAT_HEADER = "graphfeed-format"
"""The header of a request that names the format which its reader can read; without one, that is the first."""
OTHER_FORMAT = (
    "the other side has mini-batches in format {there}, and this one in format {here}; install the same release of "
    "graphfeed on both"
)

COLUMN = "minibatch"
EMPTY_ROW = bytes(16)
"""The one row of the column: Arrow's view of no bytes."""
EMPTY_LINE = bytes(ALIGNMENT)
NOTHING = np.empty(0, dtype=np.uint8)

SMALL_BYTES, LARGE_BYTES = 1 << 15, 1 << 20
"""Received tensors below the first size share a block of memory; so do those from there to the second, and larger ones
have their own."""

LARGEST_TICKET = 1 << 20
"""How many bytes a ticket may have; those of large pipelines have a few thousand."""
LONGEST_QUESTION = 100


def import_flight() -> Any:
    """Return the module `pyarrow.flight`.

    Raises:
        ImportError: pyarrow is not installed.
    """
    return import_optional("pyarrow.flight", "a sampling server", "pip install 'graphfeed[serve]'")


def check_token(token: str | None) -> str:
    """Return a token that can be sent as a header.

    Raises:
        ValueError: It is missing, or has other characters than printable ASCII.
    """
    if not token or not token.isascii() or not token.isprintable() or token != token.strip():
        given = "is missing" if not token else "has other characters, or blanks at an end"
        raise ValueError(f"token must be a text of printable ASCII characters, the same on both sides, but {given}")
    return token


@dataclass(frozen=True)
class Cut:
    """Which stages make a mini-batch."""

    fingerprint: Fingerprint
    streams: list[list[int]]
    """The random streams of each stage, which tell alike branches of a join apart."""
    rank: list[int] | None
    """The rank whose mini-batches they are, and the number of ranks; None for a source that knows no ranks."""

    @cached_property
    def text(self) -> bytes:
        """The fields in JSON, which is one line."""
        return json.dumps(asdict(self)).encode()


def describe_cut(pipe: Datapipe) -> Cut:
    """Return what says which stages a pipeline has."""
    stages = [stage for stage in traverse(pipe) if not stage.inserted]
    place = stages[0].place if isinstance(stages[0], Ranked) else None  # type: ignore[attr-defined]
    streams = [[stage.number, stage.foreign_number] for stage in stages]
    return Cut(take_fingerprint(pipe), streams, None if place is None else list(place))


def write_ticket(cut: Cut, task: tuple[int, int, int]) -> bytes:
    """Return the ticket for the mini-batch with a seed, an epoch and an index: a line for the cut and one for them."""
    return b"%b\n[%d, %d, %d]" % (cut.text, *task)


def read_ticket(ticket: bytes) -> tuple[bytes, tuple[int, int, int]]:
    """Return the text of the cut that a ticket names, for `read_cut`, and the mini-batch that it asks for.

    Raises:
        ValueError: It is no ticket.
    """
    if len(ticket) > LARGEST_TICKET:
        raise ValueError(f"a ticket may have {LARGEST_TICKET} bytes, but this one has {len(ticket)}")
    text, _, task = ticket.rpartition(b"\n")
    try:
        seed, epoch, index = json.loads(task)
        if not are_counts([abs(seed), epoch, index]):
            raise TypeError("a number is none, or is out of range")
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"not a ticket for a mini-batch: {ticket[:80]!r}") from error
    return text, (seed, epoch, index)


def read_cut(text: bytes) -> Cut:
    """Return the cut that a ticket names.

    Raises:
        ValueError: It is none.
    """
    try:
        cut = Cut(**json.loads(text))
        if not is_cut(cut):
            raise TypeError("a field has another type, or is out of range")
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"not a ticket for a mini-batch: {text[:80]!r}") from error
    return cut


def write_question(place: tuple[int, int]) -> bytes:
    """Return the question which mini-batches a server makes for a rank, of so many."""
    return ABOUT + json.dumps(place).encode()


def read_question(ticket: bytes) -> list[int]:
    """Return the rank that a question is about, and the number of ranks.

    Raises:
        ValueError: It is no question.
    """
    place: Any = None
    with suppress(RecursionError, ValueError):
        place = json.loads(ticket[len(ABOUT) :]) if len(ticket) < LONGEST_QUESTION else None
    if not is_place(place):
        raise ValueError(f"not a question about the pipeline: {ticket[:80]!r}")
    found: list[int] = place
    return found


def pack_cuts(cuts: list[tuple[Cut, int]]) -> list[Any]:
    """Return cuts, and how many mini-batches each has in an epoch, as an answer for a reader."""
    return [[asdict(cut), length] for cut, length in cuts]


def unpack_cuts(packed: list[Any]) -> list[tuple[Cut, int]]:
    """Return the cuts that a server told of.

    Raises:
        ValueError: The answer says something else.
    """
    try:
        cuts = [(Cut(**fields), length) for fields, length in packed]
    except (TypeError, ValueError) as error:
        raise ValueError("what came is no answer of a sampling server") from error
    if not all(is_cut(cut) and are_counts([length]) for cut, length in cuts):
        raise ValueError("what came is no answer of a sampling server")
    return cuts


def is_cut(cut: Cut) -> bool:
    """Tell whether the fields of a cut that came from elsewhere are what they should be."""
    stages: Any = cut.fingerprint
    streams: Any = cut.streams
    rank: Any = cut.rank
    if not isinstance(stages, dict) or not all(isinstance(own, dict) for own in stages.values()):
        return False
    if not all(isinstance(text, str) for own in stages.values() for text in own.values()):
        return False
    return isinstance(streams, list) and (rank is None or is_place(rank))


def is_place(value: Any) -> bool:
    """Tell whether a value is a list of a rank and the number of ranks."""
    return isinstance(value, list) and len(value) == 2 and are_counts(value) and value[0] < value[1]


def are_counts(values: list[Any]) -> bool:
    """Tell whether all values are ints of 0 or more."""
    return all(type(value) is int and value >= 0 for value in values)


def to_batch(kind: str, value: Any) -> Any:
    """Return an answer as a record batch, which is sent straight from the tensors' memory.

    It has one column, whose buffers are a head, a table of the tensors, and the tensors, small ones first. A column for
    each tensor would take both sides several times as long. Each buffer takes up whole cache lines of what is sent, so
    that a reader copies many at once. The one row is empty: a record batch without rows is not sent.

    Raises:
        TypeError: There is something in the value that can't be sent; the message names the place.
        ValueError: All but the tensors takes more than `LARGEST_HEADER` bytes, which no reader takes.
    """
    arrow = import_optional("pyarrow", "a sampling server", "")
    tree, tensors = pack_minibatch(value)
    rows = sorted(tensors.items(), key=lambda row: class_of(row[1].nbytes))
    head = fill_lines(json.dumps([FORMAT, kind, tree]))
    table = fill_lines(json.dumps([(name, DTYPE_NAMES[tensor.dtype], tensor.shape) for name, tensor in rows]))
    if len(head) + len(table) > LARGEST_HEADER:
        raise ValueError(
            f"all but the tensors of a mini-batch may take {LARGEST_HEADER} bytes as JSON, but takes "
            f"{len(head) + len(table)}; make tensors of its lists"
        )
    buffers = [None, *map(arrow.py_buffer, (EMPTY_ROW, head, table))]
    for _, tensor in rows:
        part = arrow.py_buffer(as_bytes(tensor if tensor.is_cpu else tensor.cpu()))
        buffers.append(part)
        # Arrow itself goes on at the next multiple of 8 bytes.
        if gap := -part.size & (ALIGNMENT - 8):
            buffers.append(arrow.py_buffer(EMPTY_LINE[:gap]))
    views = arrow.binary_view()
    column = arrow.Array.from_buffers(views, 1, buffers)
    return arrow.RecordBatch.from_arrays([column], schema=arrow.schema([(COLUMN, views)]))


def class_of(size: int) -> int:
    """Return which tensors one of so many bytes shares a block of memory with: 0 or 1, or 2 for none."""
    return (size >= SMALL_BYTES) + (size >= LARGE_BYTES)


def fill_lines(text: str) -> bytes:
    """Return JSON that takes up whole cache lines."""
    return text.ljust(align(len(text))).encode()


def from_batch(batch: Any) -> tuple[str, Any]:
    """Return the kind of an answer, and its value, whose tensors are this process's own.

    Arrow's memory can't be written to, and its arrays begin at any byte; so they are copied, once, into pooled memory.
    A tensor that is kept keeps the block that it is in: see `copy_tensors`.

    Raises:
        ValueError: It is no answer of a sampling server, or one of another release.
    """
    head, table, memory = open_body(batch)
    try:
        version, kind, tree = json.loads(head)
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError("what came is no answer of a sampling server") from error
    if version != FORMAT:
        raise ValueError(OTHER_FORMAT.format(there=brief(version), here=FORMAT))
    rows = read_table(table)
    if sum(align(size) for *_, size in rows) != memory.size:
        raise ValueError("what came is no answer of a sampling server: its tensors have other sizes than it says")
    value = unpack_minibatch(tree, copy_tensors(rows, memory))
    if not is_answer(kind, value):
        raise ValueError(f"what came is no answer of a sampling server: it says that a mini-batch was {brief(kind)}")
    return kind, value


def is_answer(kind: Any, value: Any) -> bool:
    """Tell whether a value that came from elsewhere is what goes with the kind of its answer."""
    if kind == REFUSED:
        return isinstance(value, str)
    if kind == FAILED:
        is_told = isinstance(value, list) and len(value) == 3 and isinstance(value[1], list)
        return is_told and all(isinstance(text, str) for text in (value[0], *value[1], value[2]))
    return bool(kind == MADE)


def open_body(batch: Any) -> tuple[bytes, bytes, Bytes]:
    """Return the head and the table of an answer, and the memory with its tensors, where it lies.

    No place or size is taken from the message: what is returned lies within what came.

    Raises:
        ValueError: It is no answer of a sampling server, or one of another release.
    """
    if batch is None:
        raise ValueError("what came is no answer of a sampling server: it has no data")
    check_schema(batch.schema)
    buffers = batch.column(0).buffers()[2:]
    if len(buffers) < 2:
        raise ValueError(f"what came is no answer of a sampling server: it has {len(buffers)} buffers")
    head, table = buffers[:2]
    body = table.parent
    if body is None or head.parent is None:
        raise ValueError("what came is no answer of a sampling server: its buffers lie apart, as if it were compressed")
    if head.size + table.size > LARGEST_HEADER:
        raise ValueError(
            f"what came is no answer of a sampling server: its head has {head.size} bytes and its table {table.size}, "
            f"together more than {LARGEST_HEADER}"
        )
    memory = np.frombuffer(body, np.uint8)[table.address + table.size - body.address :] if body.size else NOTHING
    return head.to_pybytes(), table.to_pybytes(), memory


def check_schema(schema: Any) -> None:
    """Refuse what has other columns than an answer of this format, such as dictionaries, of which any number may come.

    Raises:
        ValueError: It is no answer of a sampling server, or one of another release.
    """
    if b"tensors" in (schema.metadata or {}):
        raise ValueError(OTHER_FORMAT.format(there=1, here=FORMAT))
    if [str(kind) for kind in schema.types[:2]] != ["binary_view"]:
        raise ValueError(f"what came is no answer of a sampling server: its columns are {brief(schema.names)}")


def copy_tensors(rows: list[Row], memory: Bytes) -> dict[str, torch.Tensor]:
    """Return tensors that begin at multiples of a cache line in pooled memory, copied from what came.

    Those of less than 32 kB share a block of memory, those of less than 1 MB another, and larger ones have their own:
    a block for each would take longer than the copy. So a tensor that is kept keeps at most those of its mini-batch
    that are about as large: kept labels of some kB do not keep the features.
    """
    tensors: dict[str, torch.Tensor] = {}
    start = 0
    for which, together in groupby(rows, lambda row: class_of(row[3])):
        for some in [list(together)] if which < class_of(LARGE_BYTES) else [[row] for row in together]:
            places = list(accumulate((align(size) for *_, size in some), initial=0))
            block = copy_aligned(memory[start : start + places[-1]])
            for (name, dtype, shape, size), place in zip(some, places, strict=False):
                known = NUMPY_DTYPES.get(dtype)
                if known is not None and size:
                    tensors[name] = torch.from_numpy(np.ndarray(shape, known, block, place))
                else:
                    tensors[name] = from_bytes(block[place : place + size], dtype, shape)
            start += places[-1]
    return tensors


def copy_aligned(data: Bytes) -> Bytes:
    """Return a copy of bytes in pooled memory, which begins at a multiple of a cache line."""
    memory: Bytes = POOL.empty(data.size + ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    copy = memory[start : start + data.size]
    copy[:] = data
    return copy
