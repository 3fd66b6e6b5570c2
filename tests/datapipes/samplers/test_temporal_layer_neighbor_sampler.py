from typing import Any

import pytest

import graphfeed as gf
from tests.datapipes.samplers.test_temporal_neighbor_sampler import GRAPH, ITEMS, check_times
from tests.tensors import tensor


@pytest.mark.parametrize("window", [None, 300])
@pytest.mark.parametrize("options", [{}, {"prob_name": "w"}, {"replace": True}, {"hop_time": "edge"}])
def test_time_is_never_violated(options: dict[str, Any], window: int | None) -> None:
    pipe = ITEMS.temporal_sample_layer_neighbor(
        GRAPH, [3, 4], edge_timestamp_attr_name="time", pre_time_window=window, **options
    )
    for batch in pipe:
        times = tensor(batch.timestamp)
        assert check_times(batch, times, (None, "time"), window, options.get("hop_time", "seed")) > 0


def test_it_takes_fewer_nodes() -> None:
    names: dict[str, Any] = {"edge_timestamp_attr_name": "time"}
    pipes: list[gf.Datapipe] = [
        ITEMS.temporal_sample_layer_neighbor(GRAPH, [3], **names),
        ITEMS.temporal_sample_neighbor(GRAPH, [3], **names),
    ]
    counts = [sum(len(set(tensor(batch.input_nodes).tolist())) for batch in pipe) for pipe in pipes]
    assert counts[0] < 0.9 * counts[1]
