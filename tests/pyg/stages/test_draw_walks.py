from typing import Any

import graphfeed as gf
from graphfeed.pyg import DrawWalks


def test_a_walk_leads_from_destinations_to_sources() -> None:
    ring = gf.from_coo(([1, 2, 3, 4, 0], [0, 1, 2, 3, 4]), num_nodes=5)
    batches: Any = list(DrawWalks(gf.ItemSampler(gf.ItemSet(40, names="seeds"), 1), ring, 1, 2))
    found = {tuple(batch.input_nodes.tolist()) for batch in batches}
    assert found == {(0, 1, 2), (1, 2, 3), (2, 3, 4), (0, 3, 4), (0, 1, 4)}
    assert all(batch.seeds is None for batch in batches)
