from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphfeed.distributed import edge_positions as partition_columns
from graphfeed.distributed.edge_positions import edge_positions


@given(st.lists(st.integers(0, 6), max_size=8), st.integers(1, 9), st.integers(0, 99))
def test_positions_come_in_pieces_column_after_column(degrees: list[int], piece: int, seed: int) -> None:
    indptr = np.cumsum([0, *degrees])
    nodes = np.flatnonzero(np.random.default_rng(seed).integers(0, 2, len(degrees)))
    expected = [place for node in nodes for place in range(indptr[node], indptr[node + 1])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_columns, "PIECE", piece)
        found = [positions.tolist() for positions in edge_positions(indptr, nodes)]
    assert list(chain.from_iterable(found)) == expected
    assert all(len(positions) == piece for positions in found[:-1])
