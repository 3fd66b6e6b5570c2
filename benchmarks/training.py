"""A step on rows of a table that is trained, relative to torch's sparse optimizers on an `nn.Embedding`."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

import graphfeed as gf
from benchmarks.scale import Scale
from benchmarks.table import Row, compare, render
from benchmarks.timing import Case, in_turn, one_core

DIM = 100
PAIRS: dict[str, tuple[dict[str, Any], Any, float]] = {
    "row-wise Adagrad": ({"optimizer": "adagrad"}, torch.optim.Adagrad, 0.25),
    "Adagrad": ({"optimizer": "adagrad", "rowwise": False}, torch.optim.Adagrad, 100 / 340),
    "Adam": ({"optimizer": "adam"}, torch.optim.SparseAdam, 110 / 617),
}
"""Arguments of the table, torch's optimizer, and the goal for the ratio of the times."""


def report(scale: Scale) -> Iterator[str]:
    """Yield a table for each optimizer."""
    with one_core(), torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        for name, (options, optimizer, goal) in PAIRS.items():
            yield render(
                f"training: fetch {scale.gathered_rows} of {scale.products.num_nodes} rows of {DIM} float32 and update "
                f"them by {name}; ratio to torch",
                measure(name, options, optimizer, goal, scale),
            )


def measure(name: str, options: dict[str, Any], optimizer: Any, goal: float, scale: Scale) -> list[Row]:
    """Time both with the same ids and gradients, other ids in each round. Backward propagation is not included."""
    count, draws = scale.products.num_nodes, torch.Generator().manual_seed(0)
    table = gf.TrainableFeature(count, DIM, lr=0.01, seed=0, **options)
    embedding = nn.Embedding(count, DIM, sparse=True)
    embedding.weight.data.copy_(table.read())
    step = optimizer(embedding.parameters(), lr=0.01)
    index = [torch.randperm(count, generator=draws)[: scale.gathered_rows] for _ in range(scale.repeats)]
    gradients = torch.randn(scale.gathered_rows, DIM, generator=draws)

    def ours(number: int) -> None:
        table.fetch(index[number]).grad = gradients
        table.step()

    def torchs(number: int) -> None:
        embedding(index[number])
        embedding.weight.grad = torch.sparse_coo_tensor(index[number][None], gradients, embedding.weight.shape)
        step.step()

    torchs_name = f"torch.nn.Embedding and {optimizer.__name__}"
    cases: dict[str, Case] = {torchs_name: torchs, f"TrainableFeature, {name}": ours}
    times = in_turn(cases, scale.repeats)
    return compare(times, torchs_name, "ms", 1e3, {f"TrainableFeature, {name}": goal})
