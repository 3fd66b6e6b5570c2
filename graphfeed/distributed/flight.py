"""What a sampling server and its readers say to each other over Arrow Flight.

A reader asks for one mini-batch at a time, by a ticket in JSON: the fingerprint of the stages that make it, the seed,
the epoch and the index. The answer is a record batch, whose one column has the tensors as its buffers. A reader without
the pipeline first asks which mini-batches there are. Nothing is pickled.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphfeed.channels.codec import pack_tensors
from graphfeed.channels.frames import read_table
from graphfeed.datapipes.datapipe import Datapipe, Ranked
from graphfeed.datapipes.pipeline.traverse import traverse
from graphfeed.distributed.minibatch_codec import pack_minibatch, unpack_minibatch
from graphfeed.loader.fingerprint import Fingerprint, take_fingerprint
from graphfeed.ops.arguments import brief
from graphfeed.ops.buffers import POOL
from graphfeed.ops.optional import import_optional
from graphfeed.storage.memory.memory_map import Bytes
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
NOTHING = np.empty(0, dtype=np.uint8)

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


def describe_cut(pipe: Datapipe) -> Cut:
    """Return what says which stages a pipeline has."""
    stages = [stage for stage in traverse(pipe) if not stage.inserted]
    place = stages[0].place if isinstance(stages[0], Ranked) else None  # type: ignore[attr-defined]
    streams = [[stage.number, stage.foreign_number] for stage in stages]
    return Cut(take_fingerprint(pipe), streams, None if place is None else list(place))


def write_ticket(cut: Cut, task: tuple[int, int, int]) -> bytes:
    """Return the ticket for the mini-batch with a seed, an epoch and an index."""
    return json.dumps({**vars(cut), "task": task}).encode()


def read_ticket(ticket: bytes) -> tuple[Cut, tuple[int, int, int]]:
    """Return what a ticket asks for.

    Raises:
        ValueError: It is no ticket.
    """
    if len(ticket) > LARGEST_TICKET:
        raise ValueError(f"a ticket may have {LARGEST_TICKET} bytes, but this one has {len(ticket)}")
    try:
        fields = json.loads(ticket)
        seed, epoch, index = fields.pop("task")
        cut = Cut(**fields)
        if not are_counts([abs(seed), epoch, index]) or not is_cut(cut):
            raise TypeError("a field has another type, or is out of range")
        return cut, (seed, epoch, index)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"not a ticket for a mini-batch: {ticket[:80]!r}") from error


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

    It has one column, whose buffers are a head, a table of the tensors, and the tensors. A column for each tensor would
    take both sides several times as long. The one row is empty: a record batch without rows is not sent.
    """
    arrow = import_optional("pyarrow", "a sampling server", "")
    tree, tensors = pack_minibatch(value)
    table, parts = pack_tensors(tensors)
    head = json.dumps([FORMAT, kind, tree]).encode()
    views = arrow.binary_view()
    column = arrow.Array.from_buffers(views, 1, [None, *map(arrow.py_buffer, (EMPTY_ROW, head, table, *parts))])
    return arrow.RecordBatch.from_arrays([column], schema=arrow.schema([(COLUMN, views)]))


def from_batch(batch: Any) -> tuple[str, Any]:
    """Return the kind of an answer, and its value, whose tensors are this process's own.

    Arrow's memory can't be written to, and its arrays begin at any byte; so they are copied, once, into pooled memory.

    Raises:
        ValueError: It is no answer of a sampling server, or one of another release.
    """
    head, table, *parts = pieces_of(batch)
    try:
        version, kind, tree = json.loads(head.tobytes())
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError("what came is no answer of a sampling server") from error
    if version != FORMAT:
        raise ValueError(OTHER_FORMAT.format(there=brief(version), here=FORMAT))
    rows = read_table(table.tobytes())
    if [size for *_, size in rows] != [part.size for part in parts]:
        raise ValueError("what came is no answer of a sampling server: its tensors have other sizes than it says")
    tensors = {
        name: from_bytes(copy_pooled(part), dtype, shape)
        for (name, dtype, shape, _), part in zip(rows, parts, strict=True)
    }
    value = unpack_minibatch(tree, tensors)
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


def pieces_of(batch: Any) -> list[Bytes]:
    """Return the buffers of an answer, where they lie: the head, the table, and the tensors.

    Raises:
        ValueError: It is no answer of a sampling server, or one of another release.
    """
    if batch is None:
        raise ValueError("what came is no answer of a sampling server: it has no data")
    if b"tensors" in (batch.schema.metadata or {}):
        raise ValueError(OTHER_FORMAT.format(there=1, here=FORMAT))
    columns = batch.columns
    if len(columns) != 1 or str(columns[0].type) != "binary_view":
        names = brief(batch.schema.names)
        raise ValueError(f"what came is no answer of a sampling server: its columns are {names}")
    pieces = columns[0].buffers()[2:]
    if len(pieces) < 2:
        raise ValueError(f"what came is no answer of a sampling server: it has {len(pieces)} buffers")
    return [np.frombuffer(piece, np.uint8) if piece else NOTHING for piece in pieces]


def copy_pooled(data: Bytes) -> Bytes:
    """Return a copy of bytes in pooled memory."""
    memory: Bytes = POOL.empty(data.size, np.uint8)
    memory[:] = data
    return memory
