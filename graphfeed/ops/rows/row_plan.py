"""Plans which rows of a file the next mini-batches read, and which stay in memory, where these are known ahead."""

import numpy as np
import torch

from graphfeed.ops.arguments import check_count, check_ids, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.cpu.rows.row_plan import MOST_MET, RowPlan
from graphfeed.ops.rows.gather import take_rows

__all__ = ["MOST_PLANNED", "RowPlan", "find_slots", "new_row_plan", "note_rows", "place_rows", "row_plan_bytes"]

MOST_PLANNED = (1 << 31) - 1
"""The most slots."""


def new_row_plan(num_rows: int, num_slots: int) -> RowPlan:
    """Return a plan for the rows of a file, none of which has a slot yet.

    Mini-batches are planned by *windows* of several. A window's rows are noted mini-batch by mini-batch, and then
    placed at once. Its rows stay until they are no longer needed. As a window is placed before the one before it is
    used, the plan knows two windows ahead, and no policy reads fewer rows for these with as many slots (Belady, 1966).
    Beyond that it keeps the rows that were met most.

    Args:
        num_rows: The rows of the file.
        num_slots: For how many of them there is memory.

    Example:
        >>> plan = new_row_plan(num_rows=10, num_slots=4)
        >>> note_rows(plan, torch.tensor([7, 2, 7]), window=0)
        2
        >>> rows, slots = place_rows(plan, window=0, first=0)
        >>> rows.tolist(), slots.tolist()
        ([2, 7], [0, 1])
        >>> find_slots(plan, torch.tensor([7, 3])).tolist()
        [1, -1]
    """
    check_count("num_rows", num_rows, 0)
    check_count("num_slots", num_slots, 0)
    if num_slots > MOST_PLANNED:
        raise ValueError(f"num_slots must be at most {MOST_PLANNED}, but is {num_slots}")
    return RowPlan(
        slots=np.full(num_rows, -1, np.int32),
        met=np.zeros(num_rows, np.uint8),
        lacking=np.zeros(-(-num_rows // 64), np.uint64),
        num_lacking=np.zeros(1, np.int64),
        rows=np.full(num_slots, -1, np.int64),
        windows=np.full(num_slots, -1, np.int32),
    )


def row_plan_bytes(num_rows: int, num_slots: int) -> int:
    """Return the memory that a plan takes: 5.1 bytes per row, and 12 per slot.

    Example:
        >>> row_plan_bytes(num_rows=6400, num_slots=100)
        34008
    """
    return 5 * num_rows + 8 * -(-num_rows // 64) + 8 + 12 * num_slots


def note_rows(plan: RowPlan, ids: torch.Tensor, window: int) -> int:
    """Note the rows of one more mini-batch of the window that is being collected. Costs some 10 ns per id.

    Args:
        plan: Changed.
        ids: int32 or int64, on the CPU.
        window: The number of the window, which is larger than that of the window before.

    Returns:
        How many rows the window had not asked for before.

    Raises:
        IndexError: An id is not that of a row.
    """
    check_vector("ids", ids)
    check_ids("ids", ids, plan.slots.size, IndexError)
    return int(kernels("rows.row_plan", ids).note_rows(plan, ids.contiguous(), window))


def place_rows(plan: RowPlan, window: int, first: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the rows that a window lacks slots. Costs a pass over all slots, and one over a bit for each row.

    Args:
        plan: Changed.
        window: The number of the window.
        first: The number of the first window whose rows must stay.

    Returns:
        rows: int64: those that got a slot, ascending. If there are not enough slots, the last rows get none.
        slots: int64, ascending: their slots.
    """
    module = kernels("rows.row_plan", torch.empty(0))
    rows = torch.empty(int(plan.num_lacking[0]), dtype=torch.int64)
    module.take_lacking(plan, rows)
    slots = torch.empty_like(rows)
    placed = module.place_rows(plan, rows, window, first, np.zeros(MOST_MET + 1, np.int64), slots)
    return rows[:placed], slots[:placed]


def find_slots(plan: RowPlan, ids: torch.Tensor) -> torch.Tensor:
    """Return the slot of each row, int32; -1 for those without one.

    Raises:
        IndexError: An id is not that of a row.
    """
    check_vector("ids", ids)
    check_ids("ids", ids, plan.slots.size, IndexError)
    return take_rows(torch.from_numpy(plan.slots), ids)
