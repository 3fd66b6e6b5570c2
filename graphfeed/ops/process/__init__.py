"""What concerns the process: optional packages, progress bars, which files it opens, and what a fork makes anew.

Nothing here starts a process or a thread: those that workers run in are started by `graphfeed.loader`, and those that
compile kernels by `graphfeed.ops.cpu.compiler`.
"""

from graphfeed.ops.forks import ForkLock, after_fork_in_child, renew_in_child
from graphfeed.ops.process.closing import Closeable
from graphfeed.ops.process.entry_points import ENTRY_POINTS, imported_entry_points, load_entry_point
from graphfeed.ops.process.optional import import_optional, install_hint
from graphfeed.ops.process.progress import ProgressBar, progress_bar
from graphfeed.ops.regular_file import regular_file

__all__ = [
    "ENTRY_POINTS",
    "Closeable",
    "ForkLock",
    "ProgressBar",
    "after_fork_in_child",
    "import_optional",
    "imported_entry_points",
    "install_hint",
    "load_entry_point",
    "progress_bar",
    "regular_file",
    "renew_in_child",
]
