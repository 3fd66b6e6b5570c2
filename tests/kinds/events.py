"""A stream of events with many ties, and the ways in which an epoch of it may run."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import graphfeed as gf
from tests.kinds.digests import digests

NUM_NODES, NUM_EVENTS, FIRST_ITEM = 40, 700, 25


def stream(seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return users, items, and times that rise, with up to four events at one time."""
    rng = np.random.default_rng(seed)
    users = rng.integers(0, FIRST_ITEM, NUM_EVENTS)
    items = FIRST_ITEM + rng.integers(0, NUM_NODES - FIRST_ITEM, NUM_EVENTS) * rng.integers(0, 2, NUM_EVENTS)
    return users, items, np.sort(rng.integers(0, 300, NUM_EVENTS)) + 1000


USERS, ITEMS, TIMES = stream()
ENDS = torch.from_numpy(np.stack([USERS, ITEMS]))


def event_graph() -> gf.FusedCSCSamplingGraph:
    """Return both directions of each event: the edges `e` and `NUM_EVENTS + e` are the event `e`."""
    attributes = {"time": torch.from_numpy(np.tile(TIMES, 2))}
    kinds = {"kind": torch.arange(NUM_NODES) % 3}
    return gf.from_coo(torch.cat([ENDS, ENDS.flip(0)], 1), NUM_NODES, node_attributes=kinds, edge_attributes=attributes)


def event_items(first: int = 0) -> gf.ItemSet:
    return gf.ItemSet((ENDS.T[first:], torch.from_numpy(TIMES[first:])), names=("seeds", "timestamp"))


def check_same_everywhere(pipe: Any, seed: int = 5) -> list[Any]:
    """Compare threads, processes and a resumed epoch with an epoch in this thread, whose mini-batches are returned."""
    found = list(pipe.with_seed(seed))
    expected, middle = digests(found), len(found) // 2
    for workers, executor in ((0, None), (2, None), (2, gf.ProcessExecutor(2))):
        with gf.DataLoader(pipe, num_workers=workers, executor=executor, seed=seed) as loader:
            assert digests(loader) == expected
        if executor is not None:
            executor.shutdown()
    with gf.DataLoader(pipe, num_workers=2, seed=seed) as loader:
        batches = iter(loader)
        for _ in range(middle):
            next(batches)
        state = loader.state_dict()
    with gf.DataLoader(pipe, seed=seed) as resumed:
        resumed.load_state_dict(state)
        assert digests(resumed) == expected[middle:]
    return found
