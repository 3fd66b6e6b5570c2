"""Kernels of a cache whose keys have few places each."""

import torch

from graphfeed.ops.cuda.launch import WARP_SIZE, launch


def find_in_sets(keys, uses, wanted, request, slots):
    count = wanted.numel()
    launch("find_in_sets", WARP_SIZE * count, keys, uses, *keys.shape, wanted, count, request, slots)


def replace_in_sets(keys, uses, wanted, request, slots):
    count = wanted.numel()
    numbers = torch.empty_like(wanted)
    launch("number_sets", count, keys.shape[0], wanted, count, numbers)
    # Keys of a set are side by side then, in their order: the warp of the first one does all of them.
    numbers, order = torch.sort(numbers, stable=True)
    launch(
        "replace_in_sets", WARP_SIZE * count, keys, uses, keys.shape[1], numbers, order, wanted, count, request, slots
    )  # fmt: skip
