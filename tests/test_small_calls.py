"""What a call costs beside its work: so many functions of Python, which no busy machine changes."""

import sys

import pytest
import torch

import graphfeed as gf
from benchmarks.graphs import Shape, make_edges
from benchmarks.small_calls import library_calls

MOST = {
    "sample_neighbors of 16 seeds": 120,
    "sample_neighbors of 1,000 seeds": 152,
    "unique_and_compact of 30 ids": 21,
    "TorchBasedFeature.read of 1 row": 19,
}


@pytest.mark.parametrize("what", MOST)
def test_small_calls_go_through_few_functions(what: str) -> None:
    call = library_calls(gf, *map(torch.from_numpy, make_edges(Shape("small", 1_000, 20_000, 3))))[what]
    called: list[str] = []
    call()
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        call()
    finally:
        sys.setprofile(None)
    assert len(called) <= MOST[what], called
