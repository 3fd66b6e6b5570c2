import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.records import TextNumbers
from graphfeed.ops.records.number_texts import LEAST_BYTES
from tests.ops.records.test_find_texts import TEXTS, parts


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
