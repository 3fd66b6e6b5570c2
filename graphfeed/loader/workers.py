"""Who runs the workers' side of a loader: when its executor is started, kept and ended."""

import os
import weakref
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from graphfeed.loader.executors.idle_executors import release_executor, take_executor
from graphfeed.loader.executors.process_executor import ProcessExecutor
from graphfeed.loader.executors.thread_executor import ThreadExecutor
from graphfeed.loader.options import RemoteServers
from graphfeed.ops.process import ForkLock, load_entry_point, renew_in_child


@dataclass(eq=False)
class Workers:
    """The executor of a loader, which is started when it is first needed."""

    given: Executor | None
    servers: RemoteServers
    worker: str
    num_workers: int
    timeout: float
    persistent: bool
    pool: Executor | None = field(default=None, init=False)
    """What is kept for the next epoch."""
    starting: ForkLock = field(default_factory=ForkLock, init=False)

    def __post_init__(self) -> None:
        self._process = os.getpid()
        renew_in_child(self, Workers._forget)

    @property
    def who(self) -> str:
        """Return "thread", "process", "server" or "executor"."""
        return "executor" if self.given is not None else "server" if self.servers.addresses else self.worker

    def take(self) -> Executor:
        """Return the executor for an epoch."""
        if self.given is not None:
            if self._process != os.getpid():
                raise RuntimeError(
                    "the executor that this loader was given belongs to the process that this one was forked from; "
                    "make an executor and a loader here"
                )
            return self.given
        if not self.persistent:
            return self._start()
        # Two threads may start an epoch at the same time.
        with self.starting:
            if self.pool is None:
                self.pool = self._start()
                self._release = weakref.finalize(self, release_executor, self.pool, wait=False)
            return self.pool

    def leave(self, executor: Executor | None) -> None:
        # One that the user gave is never shut down, and one that is kept is for the next epoch.
        if executor is not None and executor is not self.given and executor is not self.pool:
            executor.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        if self.pool is not None and self._release.detach():
            release_executor(self.pool, wait=True)
        self.pool = None

    def _start(self) -> Executor:
        if self.servers.addresses:
            remote_executor: Any = load_entry_point("executors", "servers")
            *which, patience = self.servers
            executor: Executor = remote_executor(*which, self.num_workers, self.timeout, patience)
            return executor
        if self.worker == "process":
            make = take_executor if self.persistent else ProcessExecutor
            return make(self.num_workers, timeout=self.timeout)
        return ThreadExecutor(self.num_workers)

    def _forget(self) -> None:
        # A forked process starts workers of its own.
        self.pool = None
