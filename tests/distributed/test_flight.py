"""What servers and readers say to each other."""

import json
import struct
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed.flight import (
    LARGEST_TICKET,
    MADE,
    bytes_of,
    check_token,
    describe_cut,
    from_batch,
    pack_cuts,
    read_question,
    read_ticket,
    to_batch,
    unpack_cuts,
    write_question,
    write_ticket,
)
from tests import pipelines

arrow = pytest.importorskip("pyarrow")


def test_a_ticket_says_the_same_to_the_server() -> None:
    cut = describe_cut(pipelines.homogeneous())
    assert read_ticket(write_ticket(cut, (1, 2, 3))) == (cut, (1, 2, 3))


@pytest.mark.parametrize(
    "ticket",
    [b"", b"\xff", b"[]", b"{}", b"null", json.dumps({"fingerprint": {}, "streams": [], "rank": None}).encode()],
)
def test_what_is_no_ticket_is_refused(ticket: bytes) -> None:
    with pytest.raises(ValueError, match="not a ticket"):
        read_ticket(ticket)


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
        {"task": [0, 0, float("inf")]},
        {"task": [0, 0, -1]},
        {"task": [0, -1, 0]},
        {"task": ["0", 0, 0]},
        {"more": 1},
    ],
)
def test_a_field_of_another_type_or_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    fields = {"fingerprint": {"1 ItemSampler": {}}, "streams": [], "rank": [0, 2], "task": [-1, 0, 0]}
    assert read_ticket(json.dumps(fields).encode())[1] == (-1, 0, 0)
    with pytest.raises(ValueError, match="not a ticket"):
        read_ticket(json.dumps(fields | wrong).encode())


def test_a_ticket_that_nests_too_deep_is_refused() -> None:
    with pytest.raises(ValueError, match="not a ticket"):
        read_ticket(b"[" * 100_000)


def test_a_long_ticket_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(ValueError, match="may have 1048576 bytes, but this one has 1048577"):
        read_ticket(b" " * (LARGEST_TICKET + 1))


@pytest.mark.parametrize("token", [None, "", " a", "a\n", "ä"])
def test_a_token_must_fit_into_a_header(token: str | None) -> None:
    with pytest.raises(ValueError, match="token must be a text of printable ASCII"):
        check_token(token)


def test_an_answer_without_what_a_server_adds_is_refused() -> None:
    batch = arrow.record_batch([arrow.array([1])], names=["a"])
    with pytest.raises(ValueError, match="no answer of a sampling server"):
        from_batch(batch)


def test_a_question_about_the_pipeline_says_the_same_to_the_server() -> None:
    assert read_question(write_question((1, 3))) == [1, 3]


@pytest.mark.parametrize(
    "text", ["", "[]", "[1, 1]", "[0, true]", "{", "[" * 99, "[" * 100_000, "[0, 1" + "0" * 99 + "]"]
)
def test_what_is_no_question_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a question about the pipeline"):
        read_question(b"about " + text.encode())


def test_the_cuts_of_a_server_arrive_as_they_are() -> None:
    cuts = [(describe_cut(pipelines.homogeneous()), 10)]
    assert unpack_cuts(json.loads(json.dumps(pack_cuts(cuts)))) == cuts


@pytest.mark.parametrize("packed", [None, [1], [[{}, 1]], [[{"fingerprint": 1, "streams": [], "rank": None}, 1]]])
def test_an_answer_that_names_no_cuts_is_refused(packed: list[object]) -> None:
    with pytest.raises(ValueError, match="no answer of a sampling server"):
        unpack_cuts(packed)


def test_the_bytes_of_an_answer_are_read_where_they_lie() -> None:
    batch = to_batch(MADE, gf.MiniBatch(seeds=torch.arange(100_000), labels=torch.empty(0)))
    seeds, labels = (batch.column(batch.schema.names.index(f"minibatch.{name}")) for name in ("seeds", "labels"))
    assert bytes_of(seeds).ctypes.data == seeds.buffers()[2].address
    assert bytes_of(labels).size == 0
    kind, minibatch = from_batch(batch)
    assert kind == MADE
    assert minibatch.seeds.tolist() == list(range(100_000))
    minibatch.seeds += 1  # tensors are this process's own
    assert from_batch(batch)[1].seeds[0] == 0


@pytest.mark.parametrize(
    "offsets", [(-1, 4), (0, 9), (5, 4), (9, 9), (-(1 << 63), (1 << 63) - 1)], ids=lambda offsets: str(offsets)
)
def test_offsets_out_of_range_are_refused(offsets: tuple[int, int]) -> None:
    batch = arrow.record_batch([arrow.array([b"12345678"], arrow.large_binary())], names=["x"])
    sent = batch.serialize().to_pybytes().replace(struct.pack("=qq", 0, 8), struct.pack("=qq", *offsets))
    column = arrow.ipc.read_record_batch(arrow.py_buffer(sent), batch.schema).column(0)
    with pytest.raises(ValueError, match=f"bytes {offsets[0]} to {offsets[1]} of 8"):
        bytes_of(column)


@pytest.mark.parametrize("column", [arrow.array([1]), arrow.array([b"1"]), arrow.array([[b"1"]])], ids=str)
def test_a_column_of_another_type_is_refused(column: Any) -> None:
    with pytest.raises(ValueError, match="a column of"):
        bytes_of(column)
