"""Rows of a feature tensor by random ids, relative to memcpy of the same size."""

from collections.abc import Iterator

import numpy as np
import torch

import graphfeed as gf
from benchmarks.graphs import load_features
from benchmarks.limits import Copy
from benchmarks.scale import Scale
from benchmarks.table import Row, compare, render
from benchmarks.timing import Case, in_turn, one_core
from graphfeed import ops

GOAL = 2.0


def report(scale: Scale) -> Iterator[str]:
    """Yield one table."""
    features = load_features(scale.products, scale.cache)
    size = scale.gathered_rows * features[0].nbytes
    title = (
        f"gather: {scale.gathered_rows} random rows of {features[0].nbytes} bytes from "
        f"{features.nbytes / 1e6:.0f} MB; ratio to memcpy of as many bytes"
    )
    with one_core():
        yield render(title, measure(features, scale, Copy(size)))


def measure(features: np.ndarray, scale: Scale, copy: Copy) -> list[Row]:
    """Time all ways of gathering with the same ids, different ones in each round."""
    values = torch.from_numpy(features)
    feature = gf.TorchBasedFeature(values)
    used = torch.zeros(scale.gathered_rows, values.shape[1])
    rng = np.random.default_rng(0)
    ids = rng.integers(len(features), size=(scale.repeats, scale.gathered_rows))
    index = torch.from_numpy(ids)
    cases: dict[str, Case] = {
        "memcpy into used memory": lambda _: copy.run(),
        "TorchBasedFeature.read": lambda number: feature.read(index[number]),
        "ops.gather_rows": lambda number: ops.gather_rows(values, index[number]),
        "torch.index_select, used memory": lambda number: torch.index_select(values, 0, index[number], out=used),
        "torch indexing, fresh memory": lambda number: values[index[number]],
        "numpy.take, fresh memory": lambda number: np.take(features, ids[number], axis=0),
    }
    times = in_turn(cases, scale.repeats)
    goals = dict.fromkeys(("TorchBasedFeature.read", "ops.gather_rows"), GOAL)
    return compare(times, "memcpy into used memory", "ms", 1e3, goals)
