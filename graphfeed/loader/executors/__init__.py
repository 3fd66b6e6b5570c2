"""Who computes: worker threads and processes behind the interface of `concurrent.futures.Executor`.

A `ThreadExecutor` and a `ProcessExecutor` are what the loader and users submit calls to; any other executor of the same
interface can take their place. A dispatcher, a thread, gives calls to worker processes and replaces workers that die;
`worker_process` is a worker as that thread sees it, `worker_main` what runs inside it. The processes of a closed loader
wait there for the next one. A `WorkerTask` is what the loader lets workers do: the stages before the cut.
"""

from graphfeed.loader.executors.cores import available_cores, cpu_quotas
from graphfeed.loader.executors.thread_executor import ThreadExecutor, renew_torch_threads
from graphfeed.loader.executors.worker_main import RemoteError, RemoteTraceback, notes_of, summarise
from graphfeed.loader.executors.worker_process import interrupts_blocked
from graphfeed.loader.executors.worker_task import FORGETS, WorkerTask

__all__ = [
    "FORGETS", "RemoteError", "RemoteTraceback", "ThreadExecutor", "WorkerTask", "available_cores", "cpu_quotas",
    "interrupts_blocked", "notes_of", "renew_torch_threads", "summarise",
]  # fmt: skip
