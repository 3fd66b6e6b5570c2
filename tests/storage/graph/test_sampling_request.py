from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph.sampling_request import SamplingRequest

IN_TIME = gf.TemporalQuery(edge_timestamp_attr_name="time")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": "last"}, "strategy must be one of .*, but is 'last'"),
        ({"strategy": "latest"}, "strategy='latest' needs timestamps"),
        ({"strategy": "latest", "replace": True, "temporal": IN_TIME}, "strategy='latest' takes each edge once"),
        ({"strategy": "latest", "probs_name": "w", "temporal": IN_TIME}, "strategy='latest' takes each edge once"),
        ({"num_gpu_cached_edges": -1}, "num_gpu_cached_edges must be 0 .no cache. or more, but is -1"),
        ({"gpu_cache_threshold": 0}, "gpu_cache_threshold must be 1 .at once. or more, but is 0"),
    ],
)
def test_errors_say_what_is_wrong(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SamplingRequest([torch.tensor([2])], **options)


def test_a_request_needs_no_more_than_fanouts() -> None:
    request = SamplingRequest([torch.tensor([2])])
    assert (request.replace, request.probs_name, request.strategy, request.temporal) == (False, None, "uniform", None)
    assert request.deduplicate
