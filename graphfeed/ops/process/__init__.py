"""Process-wide utilities: optional packages, progress bars, files, interrupts, and state to reset after a fork.

Worker processes and threads are started by `graphfeed.loader` and `graphfeed.ops.cpu.compiler`.
"""

from graphfeed.ops.process.forks import ForkLock, after_fork_in_child, renew_in_child
from graphfeed.ops.process.interrupts import (
    Changes,
    as_they_end,
    in_one_step,
    result_of,
    uninterrupted,
    wait_until_done,
)
from graphfeed.ops.process.limits import Limits, current_limits, limits, set_limits
from graphfeed.ops.process.surroundings import (
    ENTRY_POINTS,
    Closeable,
    ProgressBar,
    import_optional,
    install_hint,
    load_entry_point,
    local_path,
    natural_order,
    progress_bar,
    regular_file,
)

__all__ = [
    "ENTRY_POINTS",
    "Changes",
    "Closeable",
    "ForkLock",
    "Limits",
    "ProgressBar",
    "after_fork_in_child",
    "as_they_end",
    "current_limits",
    "import_optional",
    "in_one_step",
    "install_hint",
    "limits",
    "load_entry_point",
    "local_path",
    "natural_order",
    "progress_bar",
    "regular_file",
    "renew_in_child",
    "result_of",
    "set_limits",
    "uninterrupted",
    "wait_until_done",
]
