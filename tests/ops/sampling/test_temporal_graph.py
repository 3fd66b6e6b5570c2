import re
from typing import Any

import pytest
import torch

from graphfeed import ops
from graphfeed.ops.sampling.temporal_graph import ensure_temporal, is_part_of
from graphfeed.ops.sampling.time_order import ensure_links

INDPTR, INDICES, TIMES = torch.tensor([0, 2, 3]), torch.tensor([1, 0, 0]), torch.tensor([5, 3, 4])


@pytest.mark.parametrize("name", ["times", "earliest", "edge_times"])
@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (TIMES[:2], ValueError, "must have 3 values, one per edge, but has 2"),
        (TIMES.int(), TypeError, "must be torch.int64, but is torch.int32"),
    ],
)
def test_times_that_do_not_fit_are_named(name: str, given: torch.Tensor, error: type[Exception], words: str) -> None:
    changed: dict[str, Any] = {name: given}
    graph = ops.TemporalGraph(INDPTR, INDICES, TIMES)._replace(**changed)
    with pytest.raises(error, match=rf"graph\.{name} {re.escape(words)}"):
        ensure_temporal(graph)


def test_the_order_of_checked_links_is_not_checked_again() -> None:
    found = ops.order_by_time(INDPTR, TIMES)
    assert found.order is not None
    links = ops.link_sources(INDPTR, INDICES, found.order)
    assert links is not None
    graph = ops.TemporalGraph(INDPTR, INDICES, found.times, ops.linked_order(links), links)
    assert not is_part_of(ops.linked_order(links), graph)
    ensure_links(INDPTR, links)
    assert is_part_of(ops.linked_order(links), graph)
    assert not is_part_of(found.order, graph)
