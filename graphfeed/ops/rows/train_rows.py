"""Draw the first rows of a table, and update rows by their gradients."""

import math
from typing import Any, NamedTuple, SupportsFloat

import torch

from graphfeed.ops.arguments import brief, check_ids, check_seed, check_tensors, check_vector, checked
from graphfeed.ops.backend import kernels
from graphfeed.ops.cpu.rows.train_rows import ADAGRAD, ADAM, ROWWISE, SGD, SIGNED
from graphfeed.ops.random import MASK
from graphfeed.ops.structure.compact import compact

FLOATS = (torch.float32, torch.float64)
RULES = {"sgd": SGD, "rowwise": ROWWISE, "adagrad": ADAGRAD, "adam": ADAM}
"""The number of each rule in the kernel."""


class StepRule(NamedTuple):
    """The rule of an optimizer, and its numbers."""

    name: str
    """"sgd"; "rowwise", which is Adagrad with one sum for each row; "adagrad" with one for each number; or "adam"."""
    lr: float
    eps: float = 1e-10
    betas: tuple[float, float] = (0.9, 0.999)
    mean: bool = False
    """Whether the gradients of equal ids are averaged instead of added."""

    def checked(self) -> "StepRule":
        """Return the rule with floats; raise a ValueError if a number is out of range, or is not a number."""
        numbers: list[tuple[str, list[Any]]] = [("lr", [self.lr]), ("eps", [self.eps]), ("betas", [*self.betas])]
        for name, values in numbers:
            most = 1 if name == "betas" else math.inf
            if not all(isinstance(value, SupportsFloat) and 0 <= float(value) < most for value in values):
                raise ValueError(f"{name} must be at least 0 and below {most}, but is {brief(getattr(self, name))}")
        first, second = map(float, self.betas)
        return StepRule(self.name, float(self.lr), float(self.eps), (first, second), bool(self.mean))

    def width(self, size: int) -> int:
        """Return how many numbers the state of a row of `size` numbers has. All are 0 before the first step."""
        return {"sgd": 0, "rowwise": 1, "adagrad": size, "adam": 2 + 2 * size}[self.name]

    def factors(self, size: int) -> list[float]:
        """Return the numbers that the kernel needs."""
        if self.name == "adam":
            first, second = self.betas
            return [self.lr, self.eps, first, 1 - first, second, 1 - second]
        return [self.lr, self.eps, size, 0.0]


@checked
def draw_rows(rows: torch.Tensor, ids: torch.Tensor, key: int, bound: float) -> None:
    """Fill rows with numbers from `-bound` to `bound`: a uniform draw by key, id and column.

    Args:
        rows: float32 or float64, shape (len(ids), columns), contiguous. Modified in place.
        ids: int32 or int64, 1-D.
        key: Key of the draws, 64 bits.
        bound: The largest number.

    Example:
        >>> rows = torch.empty(4, 2)
        >>> draw_rows(rows, torch.arange(10, 14), 7, 1.0)
        >>> draw_rows(other := torch.empty(1, 2), torch.tensor([12]), 7, 1.0)
        >>> torch.equal(other[0], rows[2]), bool((rows.abs() <= 1).all())
        (True, True)
    """
    check_table("rows", rows)
    check_vector("ids", ids)
    if ids.numel() != rows.shape[0]:
        raise ValueError(f"ids must have one value for each of the {rows.shape[0]} rows, but has {ids.numel()}")
    check_seed("key", key)
    module = kernels("rows.train_rows", rows, ids=ids)
    if rows.numel():
        unit = torch.tensor([bound / SIGNED], dtype=torch.float64, device="cpu")
        module.draw_rows(rows.view(-1), ids.contiguous(), key & MASK, unit)


def train_rows(
    rows: torch.Tensor, state: torch.Tensor, ids: torch.Tensor, gradients: torch.Tensor, rule: StepRule
) -> None:
    """Update some rows of a table by their gradients: one step of an optimizer, in one pass.

    Only these rows and their states are read and written. The gradients of equal ids are first combined, in the order
    of their positions.

    Args:
        rows: float32 or float64, shape (rows, columns), contiguous. Modified in place.
        state: Like `rows`, with `rule.width(columns)` columns. Modified in place.
        ids: int32 or int64, 1-D, in `0 .. rows - 1`. Other values raise an IndexError, and nothing is changed.
        gradients: Like `rows`, shape (len(ids), columns).
        rule: The optimizer.

    Raises:
        TypeError: The dtypes differ.
        ValueError: The shapes don't fit each other, a table is not contiguous, or there is no such rule.

    Example:
        >>> rows = torch.zeros(3, 2)
        >>> train_rows(rows, rows[:, :0], torch.tensor([2, 0, 2]), torch.ones(3, 2), StepRule("sgd", lr=0.5))
        >>> rows.tolist()
        [[-0.5, -0.5], [0.0, 0.0], [-1.0, -1.0]]
    """
    if rule.name not in RULES:
        raise ValueError(f"rule must be one of {list(RULES)}, but is {brief(rule.name)}")
    check_table("rows", rows)
    check_vector("ids", ids)
    count, size = rows.shape
    for name, values, shape in (
        ("state", state, (count, rule.width(size))),
        ("gradients", gradients, (ids.numel(), size)),
    ):
        check_tensors(**{name: values})
        if tuple(values.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, but has {tuple(values.shape)}")
        if values.dtype != rows.dtype:
            raise TypeError(f"{name} must be {rows.dtype} like rows, but is {values.dtype}")
    check_table("state", state)
    module = kernels("rows.train_rows", rows, state=state, ids=ids, gradients=gradients)
    check_ids("ids", ids, count, IndexError)
    if gradients.numel() == 0:
        return
    gradients = gradients.detach().resolve_neg().contiguous()
    distinct, _, places = compact(ids[:0], ids)
    if distinct.numel() < ids.numel():
        # -0.0 + x is always x; 0.0 + -0.0 is 0.0.
        sums = gradients.new_full((distinct.numel(), size), -0.0)
        module.add_equal(places, gradients.view(-1), sums.view(-1))
        gradients = sums.div_(places.bincount()[:, None]) if rule.mean else sums
    factors = torch.tensor(rule.factors(size), dtype=rows.dtype, device="cpu")
    module.step(rows.view(-1), state.view(-1), distinct, gradients.view(-1), factors, RULES[rule.name])


def check_table(name: str, table: torch.Tensor) -> None:
    check_tensors(**{name: table})
    if table.dim() != 2 or not table.is_contiguous():
        raise ValueError(
            f"{name} must be contiguous with 2 dimensions, but has shape {tuple(table.shape)} and strides "
            f"{table.stride()}"
        )
    check_vector(name, table[:1].flatten(), FLOATS)
