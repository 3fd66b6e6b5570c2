"""Who computes: worker threads and processes behind the interface of `concurrent.futures.Executor`.

A `ThreadExecutor` and a `ProcessExecutor` are what the loader and users submit calls to; any other executor of the same
interface can take their place. A dispatcher, a thread, gives calls to worker processes and replaces workers that die;
`worker_process` is a worker as that thread sees it, `worker_main` what runs inside it. The processes of a closed loader
wait there for the next one. A `WorkerTask` is what the loader lets workers do: the stages before the cut.
"""

from graphfeed.loader.executors.cores import available_cores, cpu_quotas
from graphfeed.loader.executors.main_module import GUARD_ADVICE, NO_GUARD, PREFIX, Imported, check_main_module
from graphfeed.loader.executors.thread_executor import ThreadExecutor, renew_torch_threads
from graphfeed.loader.executors.worker_main import RemoteError, RemoteTraceback, notes_of, summarise
from graphfeed.loader.executors.worker_process import describe_exit, interrupts_blocked
from graphfeed.loader.executors.worker_task import FORGETS, WorkerTask

__all__ = [
    "FORGETS", "GUARD_ADVICE", "NO_GUARD", "PREFIX", "Imported", "RemoteError", "RemoteTraceback", "ThreadExecutor",
    "WorkerTask", "available_cores", "check_main_module", "cpu_quotas", "describe_exit", "interrupts_blocked",
    "notes_of", "renew_torch_threads", "summarise",
]  # fmt: skip
