"""What readers ask servers: what is understood, and what is refused."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from graphfeed.distributed.servers.tickets import (
    FAILED,
    LARGEST_TICKET,
    MADE,
    MEASURED,
    REFUSED,
    Cut,
    describe_cut,
    is_answer,
    read_cut,
    read_question,
    read_ticket,
    unpack_cuts,
    write_question,
    write_ticket,
)
from tests import pipelines
from tests.distributed.accepted import accepted

SPAN = [1, "ItemSampler", "", 0, 0, 1, 2, 1, 1, 10, 20]
FIELDS = {"fingerprint": {"1 ItemSampler": {}}, "streams": [], "rank": [0, 2], "task": [0, -1, 0, 0]}
NO_TEXTS = [b"", b"\xff", b"[]", b"{}", b"null", b"[" * 100_000]
NO_TICKETS = [
    *NO_TEXTS[:5],
    json.dumps({"fingerprint": {}, "streams": [], "rank": None}).encode(),
    *[b"%b\n[0, 0, 0, 0]" % text for text in NO_TEXTS],
    *[b"\n%b" % task for task in (b"[0, 0]", b"[0, 0, 0]", b"[0, 0, 0, [1]]", b"{}", b"[" * 100_000)],
]
WRONG_FIELDS: list[dict[str, object]] = [
    *[{"fingerprint": {"1 ItemSampler": value}} for value in (3, {"batch_size": [2]})],
    {"streams": None},
    *[{"rank": value} for value in (["0", 2], [0], [2, 2], [-1, 2], {"0": 1}, [False, True])],
    *[{"task": [0, 0, 0, value]} for value in (float("inf"), -1)],
    *[{"task": value} for value in ([0, 0, 0, 1, -1], [0, 0, -1, 0], [0, "0", 0, 0], [None, 0, 0, 0])],
    {"more": 1},
]
NO_QUESTIONS = ["", "[]", "[1, 1]", "[0, true]", "{", "[" * 99, "[" * 100_000, "[0, 1" + "0" * 99 + "]"]
ANSWERS = [(MADE, None), (MEASURED, [None, [SPAN]]), (REFUSED, "why"), (FAILED, ["error", ["note"], "text"])]
NO_ANSWERS: list[tuple[Any, Any]] = [
    *[(kind, None) for kind in ("else", [MADE], REFUSED, FAILED, MEASURED)],
    *[(FAILED, value) for value in (["error", "note", "text"], ["error", [1], "text"], ["error", []])],
    *[(MEASURED, [None, spans]) for spans in ([], [SPAN[:-1]], [[*SPAN[:-1], "1"]], [[1, 2, *SPAN[2:]]])],
]


def understand(ticket: bytes) -> tuple[Cut, list[tuple[int, int, int]], bool]:
    text, tasks, is_measured = read_ticket(ticket)
    return read_cut(text), tasks, is_measured


def ticket_of(fields: dict[str, Any]) -> bytes:
    """Write a ticket by hand."""
    head = {name: value for name, value in fields.items() if name != "task"}
    return f"{json.dumps(head)}\n{json.dumps(fields['task'])}".encode()


def test_a_ticket_and_a_question_say_the_same_to_the_server_and_so_does_its_answer() -> None:
    cut = describe_cut(pipelines.homogeneous())
    assert understand(write_ticket(cut, 1, 2, [3, 5])) == (cut, [(1, 2, 3), (1, 2, 5)], False)
    assert understand(write_ticket(cut, 1, 2, [3], is_measured=True)) == (cut, [(1, 2, 3)], True)
    assert understand(ticket_of(FIELDS))[1] == [(-1, 0, 0)]
    assert read_question(write_question((1, 3))) == [1, 3]
    assert unpack_cuts(json.loads(json.dumps([[asdict(cut), 10]]))) == [(cut, 10)]


def test_what_is_no_ticket_or_question_is_refused() -> None:
    assert accepted(understand, NO_TICKETS, "not a ticket") == []
    assert accepted(understand, [ticket_of({**FIELDS, **wrong}) for wrong in WRONG_FIELDS], "not a ticket") == []
    asked = [b"about " + text.encode() for text in NO_QUESTIONS]
    assert accepted(read_question, asked, "not a question about the pipeline") == []
    packed = [None, [1], [[{}, 1]], [[{"fingerprint": 1, "streams": [], "rank": None}, 1]]]
    assert accepted(unpack_cuts, packed, "no answer of a sampling server") == []
    with pytest.raises(ValueError, match="may have 1048576 bytes, but this one has 1048577"):  # before it is parsed
        read_ticket(b" " * (LARGEST_TICKET + 1))


def test_an_answer_has_what_its_kind_asks_for() -> None:
    assert [kind for kind, value in ANSWERS if not is_answer(kind, value)] == []
    assert [(kind, value) for kind, value in NO_ANSWERS if is_answer(kind, value)] == []
