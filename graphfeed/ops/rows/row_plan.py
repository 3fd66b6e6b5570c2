"""Plan which rows of a file to read and which to keep in memory, if the next mini-batches are known in advance."""

from typing import NamedTuple

import numpy as np
import torch

from graphfeed.ops.arguments import check_count, check_ids, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.cpu.rows.row_plan import MOST_MET, NO_SLOT, RowPlan
from graphfeed.ops.rows.gather import gather_unchecked

__all__ = [
    "MOST_PLANNED", "MinibatchNeed", "RowPlan", "find_slots", "new_row_plan", "next_window", "note_rows", "place_rows",
    "row_plan_bytes",
]  # fmt: skip

MOST_PLANNED = (1 << 31) - 1
"""Maximum number of slots."""


class MinibatchNeed(NamedTuple):
    """Row counts of a mini-batch, relative to its window."""

    rows: int
    """Number of rows that no previous mini-batch of the window needs."""
    kept: int
    """Number of these rows that are in memory and not needed by the previous window, so that they occupy slots."""


def new_row_plan(num_rows: int, num_slots: int) -> RowPlan:
    """Return an empty plan for the rows of a file.

    Mini-batches are numbered, and planned in *windows* of several. The rows of a window are added mini-batch by
    mini-batch. When it is complete, its rows that are not in memory wait for slots, and the next window begins. A row
    gets a slot whose row no known mini-batch needs, preferring rows that were needed least often. If a window gets all
    its slots at once, no policy with as many slots and the same knowledge reads fewer rows (Belady, 1966).

    Example:
        >>> plan = new_row_plan(num_rows=10, num_slots=4)
        >>> note_rows(plan, torch.tensor([7, 2, 7]), number=0, first=0, first_before=0)
        MinibatchNeed(rows=2, kept=0)
        >>> plan = next_window(plan, first=0)
        >>> place_rows(plan, first=0)
        (tensor([2, 7]), tensor([0, 1]))
        >>> find_slots(plan, torch.tensor([7, 3])).tolist()
        [1, -1]
    """
    check_count("num_rows", num_rows, 0)
    check_count("num_slots", num_slots, 0)
    if num_slots > MOST_PLANNED:
        raise ValueError(f"num_slots must be at most {MOST_PLANNED}, but is {num_slots}")
    words = -(-num_rows // 64)
    return RowPlan(
        slots=np.full(num_rows, NO_SLOT, np.int32),
        met=np.zeros(num_rows, np.uint8),
        lacking=np.zeros(words, np.uint64),
        num_lacking=np.zeros(1, np.int64),
        waiting=np.zeros(words, np.uint64),
        num_waiting=np.zeros(1, np.int64),
        rows=np.full(num_slots, -1, np.int64),
        needed=np.full(num_slots, -1, np.int32),
    )


def row_plan_bytes(num_rows: int, num_slots: int) -> int:
    """Return the size of a plan in bytes: 5.25 per row, and 12 per slot.

    Example:
        >>> row_plan_bytes(num_rows=6400, num_slots=100)
        34816
    """
    return 5 * num_rows + 16 * -(-num_rows // 64) + 16 + 12 * num_slots


def note_rows(plan: RowPlan, ids: torch.Tensor, number: int, first: int, first_before: int) -> MinibatchNeed:
    """Add the rows of a mini-batch to the current window. This costs about 10 ns per id.

    Args:
        plan: Modified in place.
        ids: Row ids, int32 or int64, on the CPU.
        number: Index of the mini-batch, below 2**31 - 2; must increase from call to call.
        first, first_before: Index of the first mini-batch of this window and of the previous one.

    Raises:
        IndexError: A row id is out of range.
    """
    check_vector("ids", ids)
    check_ids("ids", ids, plan.slots.size, IndexError)
    counts = np.zeros(2, np.int64)
    kernels("rows.row_plan", ids).note_rows(plan, ids.contiguous(), number, first, first_before, counts)
    return MinibatchNeed(*counts.tolist())


def next_window(plan: RowPlan, first: int) -> RowPlan:
    """Complete the window that begins at `first`: its missing rows wait for slots. Returns a plan to use from now on.

    Rows of the previous window that still wait get no slot, unless this window needs them, too.
    """
    kernels("rows.row_plan", torch.empty(0, device="cpu")).give_up_waiting(plan, first)
    return plan._replace(
        lacking=plan.waiting, num_lacking=plan.num_waiting, waiting=plan.lacking, num_waiting=plan.num_lacking
    )


def place_rows(plan: RowPlan, first: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Assign slots to waiting rows while there are free ones; return the rows and their slots, int64, ascending.

    This takes two passes over all slots. `first` is the next mini-batch; rows that it or later ones need are kept.
    """
    module, counts = kernels("rows.row_plan", torch.empty(0, device="cpu")), np.zeros(MOST_MET + 1, np.int64)
    if not plan.num_waiting[0]:
        return torch.empty(0, dtype=torch.int64, device="cpu"), torch.empty(0, dtype=torch.int64, device="cpu")
    free = module.count_free(plan, first, counts)
    rows = torch.empty(min(int(plan.num_waiting[0]), free + int(counts.sum())), dtype=torch.int64, device="cpu")
    slots = torch.empty_like(rows)
    module.pop_waiting(plan, rows)
    module.place_rows(plan, rows, first, free, counts, slots)
    return rows, slots


def find_slots(plan: RowPlan, ids: torch.Tensor) -> torch.Tensor:
    """Return the slot of each row, int32; a negative number for those without one.

    Raises:
        IndexError: A row id is out of range.
    """
    check_vector("ids", ids)
    check_ids("ids", ids, plan.slots.size, IndexError)
    return gather_unchecked(torch.from_numpy(plan.slots), ids).clamp(min=NO_SLOT)
