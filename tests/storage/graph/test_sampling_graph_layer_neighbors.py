import re
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.sampling_request import SamplingRequest
from tests import pipelines
from tests.digests import assert_same, digest

GRAPH = gf.from_coo(pipelines.random_edges(50, 50, 900, 0), 50)
SEEDS, FANOUTS = torch.arange(10), torch.tensor([3])


def sample(**options: Any) -> gf.SampledSubgraph:
    hop: gf.SampledSubgraph = GRAPH.sample_layer_neighbors(SEEDS, FANOUTS, **options)
    return hop


def test_equal_seeds_give_equal_samples() -> None:
    first = sample(random_seed=[7])
    assert_same(sample(random_seed=torch.tensor([7])), first)
    assert_same(sample(random_seed=[7, 8]), first)
    assert_same(sample(random_seed=[8, 7], seed2_contribution=1.0), first)
    assert_same(sample(random_seed=[7 - 2**64]), first)
    others = [sample(random_seed=[8]), sample(random_seed=[7, 8], seed2_contribution=0.5), sample(), sample()]
    assert len({digest(other) for other in [first, *others]}) == 5


def test_all_hops_are_single_hops() -> None:
    request, seeds = SamplingRequest([FANOUTS, torch.tensor([2])], strategy="labor"), [(1, 2), (3, 4)]
    fused = GRAPH.labor_sample_hops(SEEDS, request, seeds, 0.25)
    assert_same(fused, gf.SamplingGraph.labor_sample_hops(GRAPH, SEEDS, request, seeds, 0.25))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"random_seed": [1, 2, 3]}, "random_seed must hold 1 or 2 numbers, but holds 3"),
        ({"random_seed": [1, 2], "seed2_contribution": 1.5}, "seed2_contribution must lie in 0 .. 1, but is 1.5"),
    ],
)
def test_errors_say_what_is_wrong(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        sample(**options)
