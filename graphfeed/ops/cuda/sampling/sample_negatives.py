"""Kernel of uniform negative sampling."""

import numpy as np

from graphfeed.ops.cuda.launch import launch


def sample_negatives(pairs, negative_ratio, num_destinations, key, out):
    """Write the pairs, then each `negative_ratio` times with a destination drawn by the place of the copy."""
    count, rows = pairs.shape[0], out.shape[0]
    launch(
        "sample_negatives", rows,
        pairs, pairs.itemsize, count, negative_ratio, num_destinations, np.uint64(key), rows, out,
    )  # fmt: skip
