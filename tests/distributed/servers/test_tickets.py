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

SPAN = [1, "ItemSampler", "", 0, 0, 1, 2, 1, 1, 10, 20]


def understand(ticket: bytes) -> tuple[Cut, list[tuple[int, int, int]], bool]:
    text, tasks, is_measured = read_ticket(ticket)
    return read_cut(text), tasks, is_measured


def test_a_ticket_says_the_same_to_the_server() -> None:
    cut = describe_cut(pipelines.homogeneous())
    assert understand(write_ticket(cut, 1, 2, [3, 5])) == (cut, [(1, 2, 3), (1, 2, 5)], False)
    assert understand(write_ticket(cut, 1, 2, [3], is_measured=True)) == (cut, [(1, 2, 3)], True)


@pytest.mark.parametrize(
    "ticket",
    [
        *[b"", b"\xff", b"[]", b"{}", b"null", json.dumps({"fingerprint": {}, "streams": [], "rank": None}).encode()],
        *[b"%b\n[0, 0, 0, 0]" % text for text in (b"", b"\xff", b"[]", b"{}", b"null", b"[" * 100_000)],
        *[b"\n[0, 0]", b"\n[0, 0, 0]", b"\n[0, 0, 0, [1]]", b"\n{}", b"\n" + b"[" * 100_000],
    ],
)
def test_what_is_no_ticket_is_refused(ticket: bytes) -> None:
    with pytest.raises(ValueError, match="not a ticket"):
        understand(ticket)


@pytest.mark.parametrize(
    "wrong",
    [
        {"fingerprint": {"1 ItemSampler": 3}},
        {"fingerprint": {"1 ItemSampler": {"batch_size": [2]}}},
        {"streams": None},
        {"rank": ["0", 2]},
        {"rank": [0]},
        {"rank": [2, 2]},
        {"rank": [-1, 2]},
        {"rank": {"0": 1}},
        {"rank": [False, True]},
        {"task": [0, 0, 0, float("inf")]},
        {"task": [0, 0, 0, -1]},
        {"task": [0, 0, 0, 1, -1]},
        {"task": [0, 0, -1, 0]},
        {"task": [0, "0", 0, 0]},
        {"task": [None, 0, 0, 0]},
        {"more": 1},
    ],
)
def test_a_field_of_another_type_or_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    fields = {"fingerprint": {"1 ItemSampler": {}}, "streams": [], "rank": [0, 2], "task": [0, -1, 0, 0]}

    def write(given: dict[str, object]) -> bytes:
        task = given.pop("task")
        return f"{json.dumps(given)}\n{json.dumps(task)}".encode()

    assert understand(write({**fields}))[1] == [(-1, 0, 0)]
    with pytest.raises(ValueError, match="not a ticket"):
        understand(write({**fields, **wrong}))


def test_a_long_ticket_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(ValueError, match="may have 1048576 bytes, but this one has 1048577"):
        read_ticket(b" " * (LARGEST_TICKET + 1))


def test_a_question_about_the_pipeline_says_the_same_to_the_server() -> None:
    assert read_question(write_question((1, 3))) == [1, 3]


@pytest.mark.parametrize(
    "text", ["", "[]", "[1, 1]", "[0, true]", "{", "[" * 99, "[" * 100_000, "[0, 1" + "0" * 99 + "]"]
)
def test_what_is_no_question_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a question about the pipeline"):
        read_question(b"about " + text.encode())


def test_the_cuts_of_a_server_arrive_as_they_are() -> None:
    cut = describe_cut(pipelines.homogeneous())
    assert unpack_cuts(json.loads(json.dumps([[asdict(cut), 10]]))) == [(cut, 10)]


@pytest.mark.parametrize("packed", [None, [1], [[{}, 1]], [[{"fingerprint": 1, "streams": [], "rank": None}, 1]]])
def test_an_answer_that_names_no_cuts_is_refused(packed: list[object]) -> None:
    with pytest.raises(ValueError, match="no answer of a sampling server"):
        unpack_cuts(packed)


def test_an_answer_has_what_its_kind_asks_for() -> None:
    for kind, value in (
        (MADE, None),
        (MEASURED, [None, [SPAN]]),
        (REFUSED, "why"),
        (FAILED, ["error", ["note"], "text"]),
    ):
        assert is_answer(kind, value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("else", None),
        ([MADE], None),
        (REFUSED, None),
        (FAILED, None),
        (FAILED, ["error", "note", "text"]),
        (FAILED, ["error", [1], "text"]),
        (FAILED, ["error", []]),
        (MEASURED, None),
        (MEASURED, [None, []]),
        (MEASURED, [None, [SPAN[:-1]]]),
        (MEASURED, [None, [[*SPAN[:-1], "1"]]]),
        (MEASURED, [None, [[1, 2, *SPAN[2:]]]]),
    ],
)
def test_other_values_are_no_answers(kind: Any, value: Any) -> None:
    assert not is_answer(kind, value)
