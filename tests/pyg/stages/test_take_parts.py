from typing import Any

import graphfeed as gf
from graphfeed.pyg import TakeParts


def test_the_nodes_of_the_parts_follow_each_other() -> None:
    pipe = TakeParts(gf.ItemSampler(gf.ItemSet([2, 0, 1], names="seeds"), 2), (0, 3, 3, 5))
    batches: Any = list(pipe)
    assert [batch.input_nodes.tolist() for batch in batches] == [[3, 4, 0, 1, 2], []]
    assert all(batch.seeds is None for batch in batches)
