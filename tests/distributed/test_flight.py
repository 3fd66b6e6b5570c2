"""What servers and readers say to each other."""

import json

import pytest

from graphfeed.distributed.flight import check_token, describe_cut, from_batch, read_ticket, write_ticket
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


def test_a_fingerprint_of_another_shape_is_refused() -> None:
    fields = {"fingerprint": {"1 ItemSampler": 3}, "streams": [], "rank": None, "task": [0, 0, 0]}
    with pytest.raises(ValueError, match="not a ticket"):
        read_ticket(json.dumps(fields).encode())


@pytest.mark.parametrize("token", [None, "", " a", "a\n", "ä"])
def test_a_token_must_fit_into_a_header(token: str | None) -> None:
    with pytest.raises(ValueError, match="token must be a text of printable ASCII"):
        check_token(token)


def test_an_answer_without_what_a_server_adds_is_refused() -> None:
    batch = arrow.record_batch([arrow.array([1])], names=["a"])
    with pytest.raises(ValueError, match="no answer of a sampling server"):
        from_batch(batch)
