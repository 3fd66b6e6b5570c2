"""Some mini-batches of an epoch of real events, compared with a slow reference."""

from bisect import bisect_left
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.interop.tgm import RecencyNeighborHook

SIZE, WIDTH = 200, 10


class Wikipedia:
    """The events, as arrays and by node."""

    def __init__(self, folder: Path) -> None:
        path = folder / "wikipedia_temporal" / "wikipedia_temporal.npz"
        if not path.is_file():
            pytest.skip(f"{path} doesn't exist")
        arrays = np.load(path, allow_pickle=False)
        self.first_page = int(arrays["num_nodes_user"])
        self.num_nodes = self.first_page + int(arrays["num_nodes_page"])
        self.users, self.times = arrays["src"].astype(np.int64), arrays["timestamp"].astype(np.int64)
        self.pages = arrays["dst"].astype(np.int64) + self.first_page
        self.met: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for event, (user, page, time) in enumerate(zip(*self.columns(), strict=True)):
            self.met[user].append((time, event, page))
            self.met[page].append((time, event, user))

    def columns(self) -> list[list[int]]:
        return [own.tolist() for own in (self.users, self.pages, self.times)]

    def last(self, node: int, before: tuple[int, int]) -> list[tuple[int, int, int]]:
        """Return neighbours, times and events of a node, before a time, and among those at a time before an event."""
        met = self.met.get(node, [])
        end = bisect_left(met, before)
        return [(other, time, event) for time, event, other in met[max(end - WIDTH, 0) : end]]


@pytest.fixture(scope="module")
def wikipedia(shared_data: Path) -> Wikipedia:
    return Wikipedia(shared_data)


def padded(row: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return [(-1, 0, -1)] * (WIDTH - len(row)) + row


@pytest.mark.slow
def test_two_hops_are_those_of_a_slow_reference(wikipedia: Wikipedia) -> None:
    users, pages, times = map(torch.from_numpy, (wikipedia.users, wikipedia.pages, wikipedia.times))
    ends = torch.stack([torch.cat([pages, users]), torch.cat([users, pages])])
    graph = gf.from_coo(ends, wikipedia.num_nodes, edge_attributes={"time": times.repeat(2)})
    items = gf.ItemSet((torch.stack([users, pages], 1), times), names=("seeds", "timestamp"))
    pipe = gf.ItemSampler(items, SIZE).sample_temporal_negative(
        graph, strict=True, destinations=(wikipedia.first_page, wikipedia.num_nodes), as_columns=True,
        edge_timestamp_attr_name="time",
    )  # fmt: skip
    pipe = pipe.temporal_sample_neighbor(
        graph, [WIDTH, WIDTH], edge_timestamp_attr_name="time", strategy="latest", hop_time="edge"
    )
    batches: Any = pipe.to_matrix()
    for number in (0, 1, 333, 787):
        minibatch = next(iter(batches.with_seed(0, start=number)))
        for seed, time in zip(minibatch.seeds.tolist(), minibatch.timestamp.tolist(), strict=True):
            now = {other for when, _, other in wikipedia.met[seed[0]] if when == time}
            assert seed[2] not in now
            assert seed[1] in now
        for matrix in minibatch.matrices:
            events = torch.where(matrix.mask, matrix.edges % len(times), -1)
            found = [own.tolist() for own in (matrix.ids, matrix.times, events)]
            for node, time, *row in zip(matrix.seeds.tolist(), matrix.seed_times.tolist(), *found, strict=True):
                assert [*zip(*row, strict=True)] == padded(wikipedia.last(node, (time, -1)))


@pytest.mark.slow
def test_the_hook_sees_events_of_earlier_batches(wikipedia: Wikipedia) -> None:
    names = ("edge_src", "edge_dst", "edge_time")
    columns = dict(zip(names, map(torch.from_numpy, (wikipedia.users, wikipedia.pages, wikipedia.times)), strict=True))
    numbers = torch.arange(len(wikipedia.times))[:, None]
    seeds, moments = ["edge_src", "edge_dst"], ["edge_time"] * 2
    events = SimpleNamespace(**columns, edge_x=numbers)
    hook = RecencyNeighborHook(wikipedia.num_nodes, [WIDTH, WIDTH], seeds, moments, events=events)
    for first in range(0, len(wikipedia.times), SIZE * 60):
        batch = hook(None, SimpleNamespace(**{name: own[first : first + SIZE] for name, own in columns.items()}))
        for hop in (0, 1):
            found = [own[hop].tolist() for own in (batch.nbr_nids, batch.nbr_edge_time, batch.nbr_edge_x)]
            seeds_of_hop = batch.seed_nids[hop].tolist(), batch.seed_times[hop].tolist()
            for node, time, ids, times, rows in zip(*seeds_of_hop, *found, strict=True):
                row = [(one, when, event[0]) for one, when, event in zip(ids, times, rows, strict=True) if one >= 0]
                first_time = int(wikipedia.times[first])
                before = (time, -1) if hop or time <= first_time else (first_time, first)
                assert row == wikipedia.last(node, before)
