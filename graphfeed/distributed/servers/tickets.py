"""The JSON format of requests to sampling servers, and of their responses.

A reader requests mini-batches by a ticket: a line with the fingerprint of the stages, and one with the random seed,
the epoch and the indexes of mini-batches. The response has one record batch per mini-batch, in this order, but fewer
if they are large or slow. A reader without the pipeline first queries the server's cuts.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from graphfeed.datapipes import Datapipe, DistributedItemSampler
from graphfeed.datapipes.pipeline import traverse
from graphfeed.distributed.release import RELEASE
from graphfeed.loader import Fingerprint, take_fingerprint
from graphfeed.loader.profile import Span

MADE, MEASURED, REFUSED, FAILED = "made", "measured", "refused", "failed"
"""Kinds of responses: a mini-batch, one with the times of its stages, a rejected request, or a stage's error."""
AT_ONCE = b"at once"
"""Metadata key of a response: the number of similar mini-batches that would fit into one."""
ABOUT = b"about "
"""Prefix of a query for the server's cuts."""
LARGEST_TICKET = 1 << 20
"""Maximum size of a ticket in bytes; large pipelines need a few thousand."""


@dataclass(frozen=True)
class Cut:
    """Identifies the stages that produce a mini-batch, for servers and readers."""

    fingerprint: Fingerprint
    streams: list[list[int]]
    """The random streams of each stage, which distinguish equal branches of a join."""
    rank: list[int] | None
    """The rank of the mini-batches and the number of ranks; None if the source does not depend on ranks."""
    release: str
    """Release of graphfeed."""

    def __post_init__(self) -> None:
        # The fields may come from another machine.
        stages: Any = self.fingerprint
        is_valid = isinstance(stages, dict) and isinstance(self.streams, list)
        texts = [self.release, *(text for fields in stages.values() for text in fields.values())] if is_valid else []
        if not is_valid or not all(isinstance(text, str) for text in texts):
            raise TypeError("a field of a cut has the wrong type")
        if self.rank is not None and not is_rank(self.rank):
            raise TypeError("the rank of a cut is invalid or out of range")

    @cached_property
    def text(self) -> bytes:
        return json.dumps(asdict(self)).encode()  # on one line


def describe_cut(pipe: Datapipe) -> Cut:
    stages = [stage for stage in traverse(pipe) if not stage.traits.inserted]
    rank = stages[0].rank_and_size if isinstance(stages[0], DistributedItemSampler) else None
    streams = [[stage.number, stage.seeded_number] for stage in stages]
    return Cut(take_fingerprint(pipe), streams, None if rank is None else list(rank), RELEASE)


def write_ticket(cut: Cut, seed: int, epoch: int, indexes: list[int], *, is_measured: bool = False) -> bytes:
    # One line for the cut, and one for the mini-batches, which begins with 1 to measure them.
    return b"%b\n%b" % (cut.text, json.dumps([int(is_measured), seed, epoch, *indexes]).encode())


def read_ticket(ticket: bytes) -> tuple[bytes, list[tuple[int, int, int]], bool]:
    """Return the encoded cut of a ticket, for `read_cut`, the mini-batches, and whether to measure them."""
    if len(ticket) > LARGEST_TICKET:
        raise ValueError(f"a ticket may have at most {LARGEST_TICKET} bytes, but this one has {len(ticket)}")
    text, _, task = ticket.rpartition(b"\n")
    try:
        is_measured, seed, epoch, *indexes = json.loads(task)
        if not are_counts([is_measured, abs(seed), epoch, *indexes]) or not indexes:
            raise TypeError("a number is invalid or out of range")
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"not a ticket for a mini-batch: {ticket[:80]!r}") from error
    return text, [(seed, epoch, index) for index in indexes], bool(is_measured)


def read_cut(text: bytes) -> Cut:
    try:
        return Cut(**json.loads(text))
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"not a ticket for a mini-batch: {text[:80]!r}") from error


def write_question(rank: tuple[int, int]) -> bytes:
    return ABOUT + json.dumps(rank).encode()


def read_question(ticket: bytes) -> list[int]:
    rank: Any = None
    with suppress(RecursionError, ValueError):
        rank = json.loads(ticket[len(ABOUT) :]) if len(ticket) < 100 else None
    if not is_rank(rank):
        raise ValueError(f"not a query about the pipeline: {ticket[:80]!r}")
    return list(rank)


def unpack_cuts(packed: list[Any]) -> list[tuple[Cut, int]]:
    """Return the cuts in the response to a query, each with its number of mini-batches per epoch."""
    try:
        cuts = [(Cut(**fields), length) for fields, length in packed]
        if not are_counts([length for _, length in cuts]):
            raise TypeError("a number is invalid or out of range")
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError("a sampling server does not send such a response") from error
    return cuts


def is_answer(kind: Any, value: Any) -> bool:
    """Return whether a received value has the type of its kind of response."""
    if kind == REFUSED:
        return isinstance(value, str)
    if kind == FAILED:
        is_error = isinstance(value, list) and len(value) == 3 and isinstance(value[1], list)
        return is_error and all(isinstance(text, str) for text in (value[0], *value[1], value[2]))
    if kind == MEASURED:
        is_pair = isinstance(value, list) and len(value) == 2 and isinstance(value[1], list)
        return is_pair and bool(value[1]) and all(map(is_span, value[1]))
    return bool(kind == MADE)


def is_span(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != len(Span._fields):
        return False
    position, name, side, *numbers = value  # the remaining fields are numbers
    return type(name) is type(side) is str and all(type(number) is int for number in (position, *numbers))


def is_rank(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and are_counts(value) and value[0] < value[1]


def are_counts(values: list[Any]) -> bool:
    return all(type(value) is int and value >= 0 for value in values)  # isinstance would allow bools
