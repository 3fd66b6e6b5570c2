from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.records import find_texts, index_texts

TEXTS = st.lists(st.text(max_size=3).map(str.encode) | st.binary(max_size=20), max_size=30)


def parts(texts: list[bytes]) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.tensor(list(b"".join(texts)), dtype=torch.uint8)
    return values, torch.tensor([0, *accumulate(map(len, texts))])


@given(texts=TEXTS, asked=TEXTS)
def test_each_text_is_found_at_its_first_place(texts: list[bytes], asked: list[bytes]) -> None:
    table = index_texts(*parts(texts))
    found = find_texts(*parts(texts), table, *parts([*asked, *texts]))
    assert found.tolist() == [texts.index(text) if text in texts else -1 for text in [*asked, *texts]]


def test_texts_that_share_a_slot_are_told_apart() -> None:
    texts = [b"%d" % number for number in range(3000)]
    table = index_texts(*parts(texts))
    assert (len(table), table.dtype) == (8192, torch.int64)
    assert torch.equal(find_texts(*parts(texts), table, *parts(texts)), torch.arange(3000))
    assert find_texts(*parts(texts), table, *parts([b"3000", b""])).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("offsets", "text"),
    [([], "one value more"), ([0, 5], "at most the 4 bytes"), ([-1, 2], "rise from 0"), ([0, 3, 2], "rise from 0")],
)
def test_offsets_that_divide_nothing_are_refused(offsets: list[int], text: str) -> None:
    values, wrong = torch.zeros(4, dtype=torch.uint8), torch.tensor(offsets, dtype=torch.int64)
    with pytest.raises(ValueError, match=f"^offsets must .*{text}"):
        index_texts(values, wrong)
    with pytest.raises(ValueError, match=f"^asked_offsets must .*{text}"):
        find_texts(*parts([b"a"]), index_texts(*parts([b"a"])), values, wrong)


@pytest.mark.parametrize("table", [[7, -5, 1 << 62, 0], [0, 0, 0, 0], [1, 1, -1, 1]])
@pytest.mark.parametrize("offsets", [[0, 1, 2], [0, 1 << 62, 2], [-(1 << 62), 1, 1 << 62], []])
def test_a_table_or_texts_that_are_others_find_nothing_beyond_them(table: list[int], offsets: list[int]) -> None:
    """The searched texts are not checked at each call, so the kernel has to stay inside."""
    values, given_offsets = torch.tensor(list(b"ab"), dtype=torch.uint8), torch.tensor(offsets, dtype=torch.int64)
    found = find_texts(values, given_offsets, torch.tensor(table), *parts([b"a", b"zz" * 40]))
    assert found.tolist()[1] == -1
    with pytest.raises(ValueError, match="table must be what index_texts"):
        find_texts(values, given_offsets, torch.tensor([0, 1, -1]), *parts([b"a"]))
