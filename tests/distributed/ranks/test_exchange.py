from typing import Any

import pytest
import torch

from graphfeed.distributed.ranks.exchange import ask_owners, merge_columns
from graphfeed.distributed.ranks.peers import Peers

DTYPES = {"sources": torch.int64}


def answer(places: list[int], counts: list[int], sources: list[int]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    tensors = {"counts": torch.tensor(counts, dtype=torch.int32), "sources": torch.tensor(sources, dtype=torch.int32)}
    return torch.tensor(places), tensors


def test_columns_of_any_length_come_back_in_the_order_of_the_questions() -> None:
    answers = [answer([1, 4], [2, 0], [10, 11]), answer([0, 2, 3], [1, 0, 3], [20, 21, 22, 23])]
    offsets, columns = merge_columns(answers, DTYPES)
    assert offsets.tolist() == [0, 1, 3, 3, 6, 6]
    assert columns["sources"].tolist() == [20, 10, 11, 21, 22, 23]
    assert columns["sources"].dtype == torch.int64
    alone = merge_columns([answer([0, 1], [2, 0], [10, 11])], DTYPES)[1]["sources"]
    assert (alone.tolist(), alone.dtype) == ([10, 11], torch.int64)


def test_nothing_asked_is_nothing_answered() -> None:
    offsets, columns = merge_columns([], DTYPES)
    assert offsets.tolist() == [0]
    assert columns["sources"].shape == (0,)


def test_a_single_rank_answers_by_itself() -> None:
    ids = torch.tensor([3, 1])
    [(places, tensors)] = ask_owners(
        Peers(), "feature 0", lambda options, questions: {"rows": questions["ids"] * options["factor"]},
        torch.zeros(2, dtype=torch.uint8), {"factor": 2}, {"ids": ids},
    )  # fmt: skip
    assert (places.tolist(), tensors["rows"].tolist()) == ([0, 1], [6, 2])


@pytest.mark.parametrize(
    ("counts", "sources", "text"),
    [
        ([2, 1], [5, 6], "counts must be 0 or more and add up to the 2 values of their part"),
        ([2], [5, 6], "places and counts of a part must be equally long, but are 2 and 1"),
        ([3, -1], [5, 6], "counts must be 0 or more"),
        ([1, 1], [[5], [6]], "values must have 1 dimension"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(counts: Any, sources: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        merge_columns([answer([0, 1], counts, sources)], DTYPES)
