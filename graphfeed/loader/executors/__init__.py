"""Who computes: worker threads and processes behind the interface of `concurrent.futures.Executor`.

A `ThreadExecutor` and a `ProcessExecutor` are what the loader and users submit calls to; any other executor of the same
interface can take their place. A dispatcher, a thread, gives calls to worker processes and replaces workers that die;
`worker_process` is a worker as that thread sees it, `worker_main` what runs inside it. A `WorkerTask` is what the
loader lets workers do: the stages before the cut, which `pack_work` pickles.
"""

from graphfeed.loader.executors.dispatcher import WorkerLostError
from graphfeed.loader.executors.main_module import GUARD_ADVICE, NO_GUARD, PREFIX, Imported, check_main_module
from graphfeed.loader.executors.process_executor import ProcessExecutor, available_cores
from graphfeed.loader.executors.remote_error import RemoteError, RemoteTraceback, notes_of, summarise
from graphfeed.loader.executors.sending import can_be_sent
from graphfeed.loader.executors.thread_executor import (
    ThreadExecutor,
    describe_work,
    join_or_abandon,
    renew_torch_threads,
)
from graphfeed.loader.executors.worker_process import describe_exit, interrupts_blocked
from graphfeed.loader.executors.worker_task import FORGETS, WorkerTask, pack_work, work_here, work_packed

__all__ = [
    "FORGETS", "GUARD_ADVICE", "NO_GUARD", "PREFIX", "Imported", "ProcessExecutor", "RemoteError", "RemoteTraceback",
    "ThreadExecutor", "WorkerLostError", "WorkerTask", "available_cores", "can_be_sent", "check_main_module",
    "describe_exit", "describe_work", "interrupts_blocked", "join_or_abandon", "notes_of", "pack_work",
    "renew_torch_threads", "summarise", "work_here", "work_packed",
]  # fmt: skip
