from typing import Any

import torch

from graphfeed.distributed.ranks.messages import concatenate, pack, unpack
from tests.digests import assert_same

MESSAGES: list[tuple[dict[str, Any], dict[str, torch.Tensor]]] = [
    ({"id": 1, "options": {"key": 2**64 - 1}}, {"ids": torch.arange(5), "types": torch.ones(3, dtype=torch.uint8)}),
    ({"id": 2}, {}),
    ({"id": 3}, {"none": torch.empty(0, 7), "rows": torch.randn(4, 3).bfloat16(), "mask": torch.tensor([True])}),
]


def test_messages_in_a_row_come_out_as_they_went_in() -> None:
    packed = concatenate([pack(head, tensors) for head, tensors in MESSAGES])
    assert_same(list(unpack(packed)), MESSAGES)


def test_no_bytes_are_no_messages() -> None:
    assert list(unpack(concatenate([]))) == []
