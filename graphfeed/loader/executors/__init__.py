"""Worker threads and processes with the interface of `concurrent.futures.Executor`.

A dispatcher thread sends calls to worker processes and replaces those that die. `worker_process` is its handle of a
worker, and `worker_main` is the worker's main loop. A `WorkerTask` is the function that the loader runs in workers.
"""

from graphfeed.loader.executors.cores import available_cores, cpu_quotas
from graphfeed.loader.executors.thread_executor import ThreadExecutor, renew_torch_threads
from graphfeed.loader.executors.worker_main import RemoteError, RemoteTraceback, notes_of, summarise_error
from graphfeed.loader.executors.worker_process import interrupts_blocked
from graphfeed.loader.executors.worker_task import WorkerTask

__all__ = [
    "RemoteError", "RemoteTraceback", "ThreadExecutor", "WorkerTask", "available_cores", "cpu_quotas",
    "interrupts_blocked", "notes_of", "renew_torch_threads", "summarise_error",
]  # fmt: skip
