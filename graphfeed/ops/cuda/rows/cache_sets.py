"""Kernels of a set-associative cache."""

import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch


def find_in_sets(keys, uses, wanted, request, slots):
    count = wanted.numel()
    launch("find_in_sets", WARP_SIZE * count, keys, uses, *keys.shape, wanted, count, request, slots)


def replace_in_sets(keys, uses, wanted, request, slots):
    count = wanted.numel()
    numbers = torch.empty_like(wanted)
    launch("number_sets", count, keys.shape[0], wanted, count, numbers)
    # Afterwards, the keys of a set are adjacent and in order; the warp of the first key processes all of them.
    numbers, order = torch.sort(numbers, stable=True)
    launch(
        "replace_in_sets", WARP_SIZE * count, keys, uses, keys.shape[1], numbers, order, wanted, count, request, slots
    )  # fmt: skip
