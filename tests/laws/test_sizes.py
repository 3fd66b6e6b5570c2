"""Sampling equals the slow reference on both sides of each size at which the code takes another way."""

import random
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch

import graphfeed as gf
from tests import reference

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
PERIODS: list[tuple[int, tuple[int | None, int]]] = [(node, (None, now)) for node, now in zip(NODES, NOW, strict=True)]
STAMPS = [(time,) for time in TIMES]
DRAWS = (KEY, KEY), 0
WAYS: dict[str, tuple[dict[str, Any], Any]] = {
    "uniform": ({}, lambda fanout: reference.sample_neighbors(INDPTR, NODES, [fanout], KEY)),
    "replace": ({"replace": True}, lambda fanout: reference.sample_neighbors(INDPTR, NODES, [fanout], KEY, True)),
    "weighted": (
        {"probs_name": "w"},
        lambda fanout: reference.sample_neighbors(INDPTR, NODES, [fanout], KEY, False, UNITS),
    ),
    "weighted, replace": (
        {"probs_name": "w", "replace": True},
        lambda fanout: reference.sample_neighbors(INDPTR, NODES, [fanout], KEY, True, UNITS),
    ),
    "LABOR": (
        {"strategy": "labor"},
        lambda fanout: reference.labor_sample_neighbors((INDPTR, INDICES), NODES, [fanout], DRAWS),
    ),
    "LABOR, weighted": (
        {"strategy": "labor", "probs_name": "w"},
        lambda fanout: reference.labor_sample_neighbors((INDPTR, INDICES), NODES, [fanout], DRAWS, False, UNITS),
    ),
    "in time": (
        {"temporal": gf.TemporalQuery(None, "time")},
        lambda fanout: reference.temporal_sample_neighbors((INDPTR, STAMPS), PERIODS, [fanout], KEY),
    ),
    "latest": (
        {"temporal": gf.TemporalQuery(None, "time"), "strategy": "latest"},
        lambda fanout: reference.temporal_sample_neighbors((INDPTR, STAMPS), PERIODS, [fanout], KEY, "latest"),
    ),
}
"""Options of a request, and the function that samples by the reference."""


@pytest.mark.parametrize("way", WAYS)
def test_sampling_equals_the_reference_on_both_sides_of_each_size(way: str) -> None:
    attributes = {"w": torch.tensor(WEIGHTS, dtype=torch.float64), "time": torch.tensor(TIMES)}
    graph = gf.fused_csc_sampling_graph(torch.tensor(INDPTR), torch.tensor(INDICES), edge_attributes=attributes)
    options, expected = WAYS[way]
    times: Any = {"seeds_timestamp": torch.tensor(NOW)} if "temporal" in options else {}
    for fanout in FANOUTS[: 7 if "weighted" in way or "LABOR" in way else None]:
        request = gf.SamplingRequest([torch.tensor([fanout])], **options)
        (hop,) = graph.sample_hops(torch.tensor(NODES), request, [KEY], **times)
        ids, indptr = hop.original_edge_ids.tolist(), hop.sampled_csc.indptr.tolist()
        assert [ids[low:high] for low, high in pairwise(indptr)] == expected(fanout), fanout
