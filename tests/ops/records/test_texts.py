from itertools import accumulate, product

import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.records import TextNumbers, find_texts, index_texts
from graphfeed.ops.records.number_texts import LEAST_BYTES

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


def test_a_table_or_texts_that_are_others_find_nothing_beyond_them() -> None:
    """The searched texts are not checked at each call, so the kernel has to stay inside."""
    values = torch.tensor(list(b"ab"), dtype=torch.uint8)
    tables = [[7, -5, 1 << 62, 0], [0, 0, 0, 0], [1, 1, -1, 1]]
    for table, offsets in product(tables, [[0, 1, 2], [0, 1 << 62, 2], [-(1 << 62), 1, 1 << 62], []]):
        given_offsets = torch.tensor(offsets, dtype=torch.int64)
        found = find_texts(values, given_offsets, torch.tensor(table), *parts([b"a", b"zz" * 40]))
        assert found.tolist()[1] == -1, (table, offsets)


@given(batches=st.lists(TEXTS, max_size=4))
def test_texts_have_numbers_by_their_first_appearance(batches: list[list[bytes]]) -> None:
    texts, known = TextNumbers(), dict[bytes, int]()
    for batch in batches:
        expected = [known.setdefault(text, len(known)) for text in batch]
        assert texts.number(*parts(batch)).tolist() == expected
        values, offsets = parts(list(known))
        assert torch.equal(texts.values, values)
        assert torch.equal(texts.offsets, offsets)


def test_memory_grows_for_many_texts_and_for_long_ones() -> None:
    many = [b"%d" % number for number in range(3 * LEAST_BYTES // 8)]
    texts = TextNumbers()
    for batch in (many, [b"long" * LEAST_BYTES, b"", *many]):
        texts.number(*parts(batch))
    assert texts.number(*parts(many[::-1])).tolist() == list(reversed(range(len(many))))
    assert len(texts) == len(many) + 2
