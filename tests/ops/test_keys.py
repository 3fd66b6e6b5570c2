from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.ops.keys import Key
from graphfeed.ops.random import MASK


def test_bits_are_those_of_every_release() -> None:
    assert Key(1, 2, 3).at(4, 5) == 0xA5A2DE53670F7AFC


@given(st.integers(-(2**70), 2**70), st.integers(0, 2**40), st.integers(0, 2**40))
def test_keys_are_64_bits_of_any_integers(seed: int, epoch: int, index: int) -> None:
    key = Key(seed, epoch, index).at(3, 4)
    assert 0 <= key <= MASK
    assert key == Key(seed, epoch, index).at(3, 4)
    assert key != Key(seed, epoch, index).at(3, 5)


def test_a_key_is_a_value() -> None:
    key = Key(0, 1, 2)
    assert key == Key(seed=0, epoch=1, index=2)
    assert hash(key) == hash(Key(0, 1, 2))
    with pytest.raises(FrozenInstanceError):
        key.seed = 1  # type: ignore[misc]
