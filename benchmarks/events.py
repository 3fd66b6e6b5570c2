"""An epoch of events: the last neighbours of two hops in matrices, and a negative per event.

The data is TGB's Wikipedia; the environment variable GRAPHFEED_DATA names its folder, as `benchmarks.real` explains.
"""

from collections.abc import Iterator

import torch

import graphfeed as gf
from benchmarks import real
from benchmarks.scale import Scale
from benchmarks.table import Goal, Row, compare, render
from benchmarks.timing import Case, in_turn, one_core
from graphfeed.loader import RULES

BATCH_SIZE, WIDTHS = 200, [10, 10]
GOAL = 0.75
"""Seconds of an epoch."""
WHOLE, APART = "whole epoch", "sampling, then arranging"


def report(scale: Scale) -> Iterator[str]:
    """Yield a table of epochs, by processor time."""
    arrays = real.load_arrays(real.IN_TIME)
    if isinstance(arrays, str):
        yield arrays
        return
    with one_core():
        title = f"events: {real.IN_TIME}, mini-batches of {BATCH_SIZE}, neighbours {WIDTHS}; ratio to the {WHOLE}"
        yield render(title, measure(arrays, scale))


def measure(arrays: dict[str, torch.Tensor], scale: Scale) -> list[Row]:
    """Time the whole epoch, the same with sampling and arranging as two stages, and the stages before."""
    count = len(arrays["src"]) // scale.mag_divisor
    users, pages = arrays["src"][:count], arrays["dst"][:count] + arrays["num_nodes_user"]
    times, num_users = arrays["timestamp"][:count], int(arrays["num_nodes_user"])
    num_nodes = num_users + int(arrays["num_nodes_page"])
    ends = torch.stack([torch.cat([users, pages]), torch.cat([pages, users])])
    graph = gf.from_coo(ends, num_nodes, edge_attributes={"time": times.repeat(2)})
    items = gf.ItemSet((torch.stack([users, pages], 1), times), names=("seeds", "timestamp"))
    pairs = gf.ItemSampler(items, batch_size=BATCH_SIZE)
    negatives = pairs.sample_temporal_negative(graph, destinations=(num_users, num_nodes), as_columns=True)
    hops = negatives.temporal_sample_neighbor(
        graph, WIDTHS, edge_timestamp_attr_name="time", strategy="latest", hop_time="edge"
    )
    pipe = hops.to_matrix()
    others = [rule for rule in RULES if rule.__name__ != "write_matrices"]
    loaders = {
        WHOLE: gf.DataLoader(pipe, num_workers=0, seed=0),
        APART: gf.DataLoader(pipe, num_workers=0, seed=0, rules=others),
        "items and negatives": gf.DataLoader(negatives, num_workers=0, seed=0),
        "items": gf.DataLoader(pairs, num_workers=0, seed=0),
    }

    def epoch(loader: gf.DataLoader) -> Case:
        return lambda _: sum(1 for _ in loader)

    found = in_turn({name: epoch(loader) for name, loader in loaders.items()}, scale.repeats)
    rows = compare(found, WHOLE, "s")
    bounded = Goal(found[WHOLE].median, GOAL)
    return [Row(row.what, row.unit, row.times, row.ratio, bounded if row.what == WHOLE else None) for row in rows]
