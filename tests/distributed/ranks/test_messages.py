import socket
import threading
from typing import Any

import pytest
import torch

from graphfeed.distributed.ranks import messages
from graphfeed.distributed.ranks.messages import receive, send
from tests.digests import assert_same

MESSAGES: list[tuple[dict[str, Any], dict[str, torch.Tensor]]] = [
    ({"id": 1, "options": {"key": 2**64 - 1}}, {"ids": torch.arange(5), "types": torch.ones(3, dtype=torch.uint8)}),
    ({}, {}),
    ({"id": 3}, {"none": torch.empty(0, 7), "rows": torch.randn(4, 3).bfloat16(), "mask": torch.tensor([True])}),
    ({"id": 4}, {"large": torch.arange(3_000_000), "columns": torch.arange(200).reshape(10, 20).t()}),
]


@pytest.mark.parametrize("most_pieces", [1, 2, 512])
def test_messages_come_out_as_they_went_in(monkeypatch: pytest.MonkeyPatch, most_pieces: int) -> None:
    monkeypatch.setattr(messages, "MOST_PIECES", most_pieces)
    one, other = socket.socketpair()
    sizes: list[int] = []
    with one, other:
        thread = threading.Thread(target=lambda: sizes.extend(send(one, *message) for message in MESSAGES))
        thread.start()
        found = [receive(other) for _ in MESSAGES]
        thread.join()
    assert_same(found, MESSAGES)
    assert sizes[3] > 24_000_000
    assert sizes[1] < 100


def test_a_connection_that_ends_within_a_message_says_so() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(messages.SIZE.pack(100) + bytes(99))
        one.close()
        with pytest.raises(ConnectionResetError, match="the other end has closed the connection"):
            receive(other)
