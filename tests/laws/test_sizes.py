"""Sampling equals the slow reference on both sides of each size at which the code takes another way."""

import random
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests.kinds import reference

SIZES = (32, 48, 256, 1024)
"""Edges sorted by insertion, picks compared with each other, draws of a block, and edges of an indexed column."""
DEGREES = [size + step for size in SIZES for step in (-1, 0, 1)]
FANOUTS = [1, *DEGREES[:9]]
KEY, CHANCE = 12345, random.Random(3)
INDPTR = list(accumulate(DEGREES, initial=0))
INDICES = [CHANCE.randrange(len(DEGREES)) for _ in range(INDPTR[-1])]
WEIGHTS = [CHANCE.choice([0.0, 1e-12, 0.5, 1.0, 3.0]) for _ in INDICES]
UNITS = reference.weights_to_units(INDPTR, WEIGHTS)
TIMES = [CHANCE.randrange(9) for _ in INDICES]
NODES = list(range(len(DEGREES)))
NOW = [CHANCE.choice([3, 8, 9]) for _ in NODES]
DRAWS = (KEY, KEY), 0
IN_TIME = {"temporal": gf.TemporalQuery(None, "time")}
WAYS: dict[str, dict[str, Any]] = {
    "uniform": {}, "replace": {"replace": True},
    "weighted": {"probs_name": "w"}, "weighted, replace": {"probs_name": "w", "replace": True},
    "LABOR": {"strategy": "labor"}, "LABOR, weighted": {"strategy": "labor", "probs_name": "w"},
    "in time": IN_TIME, "latest": {**IN_TIME, "strategy": "latest"},
}  # fmt: skip
"""Options of a request."""


@pytest.mark.parametrize("way", WAYS)
def test_sampling_equals_the_reference_on_both_sides_of_each_size(way: str) -> None:
    attributes = {"w": torch.tensor(WEIGHTS, dtype=torch.float64), "time": torch.tensor(TIMES)}
    graph = gf.fused_csc_sampling_graph(torch.tensor(INDPTR), torch.tensor(INDICES), edge_attributes=attributes)
    options, in_time = WAYS[way], "temporal" in WAYS[way]
    times: Any = {"seeds_timestamp": torch.tensor(NOW)} if in_time else {}
    stamps = [(time,) for time in TIMES]
    given = reference.Graph(INDPTR, INDICES, None, UNITS if "probs_name" in options else None, stamps)
    columns: Any = [(node, (None, now)) for node, now in zip(NODES, NOW, strict=True)] if in_time else NODES
    how = options.get("strategy", "uniform"), options.get("replace", False)
    for fanout in FANOUTS[: 7 if "weighted" in way or "LABOR" in way else None]:
        request = gf.SamplingRequest([torch.tensor([fanout])], **options)
        (hop,) = graph.sample_hops(torch.tensor(NODES), request, [KEY], **times)
        ids, indptr = hop.original_edge_ids.tolist(), hop.sampled_csc.indptr.tolist()
        assert [ids[low:high] for low, high in pairwise(indptr)] == reference.pick_edges(
            given, columns, [fanout], DRAWS, *how
        ), fanout
