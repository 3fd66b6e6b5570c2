import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests import reference
from tests.ops.chance import check_counts, check_unrelated

DTYPES = [torch.int32, torch.int64]
PAIRS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=12)


@pytest.mark.parametrize("dtype", DTYPES)
@given(
    pairs=PAIRS, ratio=st.integers(1, 5), bound=st.sampled_from([1, 2, 100, 2**31 - 1]), key=st.integers(0, 2**64 - 1)
)
def test_equal_to_the_reference(
    dtype: torch.dtype, pairs: list[tuple[int, int]], ratio: int, bound: int, key: int
) -> None:
    result = ops.sample_negatives(torch.tensor(pairs, dtype=dtype).reshape(-1, 2), ratio, bound, key)
    assert result.dtype == dtype
    assert result.tolist() == [list(pair) for pair in reference.sample_negatives(pairs, ratio, bound, key)]


def test_ids_beyond_32_bits() -> None:
    result = ops.sample_negatives(torch.tensor([[2**40, 2**40]]), 50, 2**41, key=1)
    assert (result[:, 0] == 2**40).all()
    assert result[1:, 1].max() > 2**32


def test_destinations_are_uniform_and_unrelated() -> None:
    pairs = torch.zeros(20_000, 2, dtype=torch.int64)
    drawn = ops.sample_negatives(pairs, 2, 12, key=5)[len(pairs) :, 1]
    check_counts(torch.bincount(drawn, minlength=12), torch.ones(12))
    check_unrelated(drawn[::2], drawn[1::2], 12)
    other = ops.sample_negatives(pairs, 2, 12, key=6)[len(pairs) :, 1]
    check_unrelated(drawn, other, 12)


def test_wrong_arguments() -> None:
    pairs = torch.zeros(2, 2, dtype=torch.int64)
    for wrong in (torch.arange(3), torch.zeros(2, 3, dtype=torch.int64)):
        with pytest.raises(
            ValueError, match=r"Only tensor with shape N\*2 is supported for negative sampling, but got"
        ):
            ops.sample_negatives(wrong, 1, 5, key=0)
    with pytest.raises(TypeError, match=r"^pairs must be torch.int32 or torch.int64, but is torch.float32"):
        ops.sample_negatives(pairs.float(), 1, 5, key=0)
    with pytest.raises(ValueError, match=r"^negative_ratio must be 1 or more, but is 0"):
        ops.sample_negatives(pairs, 0, 5, key=0)
    with pytest.raises(ValueError, match=r"^num_destinations must be 1 or more, but is 0"):
        ops.sample_negatives(pairs, 1, 0, key=0)
    with pytest.raises(ValueError, match=r"^pairs are torch.int32, too narrow for 2147483649 destinations"):
        ops.sample_negatives(pairs.int(), 1, 2**31 + 1, key=0)
