"""Kernel that draws negatives."""

from graphfeed.ops.cuda.launch import launch


def sample_negatives(pairs, negative_ratio, num_destinations, key, out):
    count, rows = pairs.shape[0], out.shape[0]
    launch("sample_negatives", rows, pairs, count, negative_ratio, num_destinations, key, rows, out)
