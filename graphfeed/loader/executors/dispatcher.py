"""The thread that sends calls to worker processes, receives their replies, and replaces workers that die.

- A call that raises fails with that exception and its traceback as a string; so does one with an unreadable result.
- A worker that dies is replaced, and its task returns to the head of the queue, so a call may run more than once. After
  `ATTEMPTS` deaths during the same task, the task fails with `WorkerLostError`.
- A worker that takes longer than `timeout` is killed, and the call fails with `TimeoutError`: it would hang again.
- If no worker starts, or several in a row die before their first task, all pending tasks fail with the reason.
- After `finish(cancel=False)`, or garbage collection, workers exit when all tasks are done. `finish(cancel=True)`, or
  the end of this process, cancels pending tasks; running ones fail with `WorkerLostError`, and workers that don't exit
  within `GRACE_SECONDS` are killed. If this process is killed, its sockets close, so that the workers exit.
"""

import os
import selectors
import socket
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Any

from graphfeed.loader.executors.main_module import GUARD_ADVICE, NO_GUARD
from graphfeed.loader.executors.worker_main import GRACE_SECONDS, Reply
from graphfeed.loader.executors.worker_process import WorkerProcess
from graphfeed.loader.transport.thread_channel import STEPS

ATTEMPTS = 3
"""Maximum number of attempts of a call whose workers die, and of failed worker starts in a row."""
START_SECONDS = 60.0
"""Seconds that starting a worker may take longer than a call: it imports torch and the modules of the stages."""
KILLED_AT_START = 20
"""Maximum number of workers killed in a row during their start. It is larger, as the workers may not be the cause."""


class WorkerLostError(RuntimeError):
    """Worker processes died repeatedly, during one call or while they started."""


@dataclass(eq=False)
class WorkerCall:
    """A call and the future of its result."""

    number: int
    call: bytes
    future: "Future[Any]"
    lost: int = 0
    """Number of workers that died during this task."""


class Dispatcher:
    """Runs tasks in up to `max_workers` processes."""

    def __init__(self, max_workers: int, context: BaseContext, timeout: float) -> None:
        self.max_workers = max_workers
        self.context = context
        self.timeout = timeout
        self.process = os.getpid()
        # One thread owns all workers. Other threads only append a task or set a flag, under this lock, and wake that
        # thread. The lock is reentrant: the garbage collector may run a finalizer that calls finish() in a thread that
        # holds it.
        self.lock = threading.RLock()
        self.pending: deque[WorkerCall] = deque()
        self.finishing = False
        """Whether new tasks are rejected."""
        self.stopped = False
        """Whether all tasks are cancelled."""
        self.workers: list[WorkerProcess] = []
        self.running: dict[WorkerProcess, WorkerCall] = {}
        self.lost_at_start = 0
        self.num_replaced = 0
        """Number of workers that have died or were killed."""
        self.alarm, self.waker = socket.socketpair()
        self.alarm.setblocking(False)
        self.waker.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.alarm, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self.run, name="graphfeed-dispatcher", daemon=True)

    def put(self, task: WorkerCall) -> None:
        with self.lock:
            if self.finishing:
                raise RuntimeError("the executor was shut down; create another one")
            self.pending.append(task)
        self.wake()

    def finish(self, *, cancel: bool) -> None:
        """Accept no more tasks; with `cancel`, also drop the pending and running ones."""
        # A forked process has only a copy, whose lock may be held forever.
        if os.getpid() != self.process:
            return
        with self.lock:
            self.finishing = True
            self.stopped = self.stopped or cancel
        self.wake()

    def wake(self) -> None:
        # If the socket is full, the thread will wake anyway; if it is closed, the thread has ended.
        with suppress(OSError):
            self.waker.send(b"\0")

    def run(self) -> None:
        """Process tasks until the executor is shut down."""
        failure: BaseException = WorkerLostError("the executor was shut down before this call was done")
        try:
            while not self.stopped:
                self.assign()
                with self.lock:
                    if self.finishing and not self.pending and not self.running:
                        break
                self.wait()
                self.end_overdue()
        except BaseException as error:
            failure = error
        finally:
            self.end_workers()
            with self.lock:
                self.finishing = True
                left = [*self.running.values(), *self.pending]
                # The callbacks of a future may refer to the executor, which refers to this object.
                self.running.clear()
                self.pending.clear()
            for task in left:
                if task.future.cancel():
                    task.future.set_running_or_notify_cancel()
                else:
                    task.future.set_exception(failure)
            self.selector.close()
            self.alarm.close()
            self.waker.close()

    def assign(self) -> None:
        """Send tasks to idle workers, and start more workers if there are too few."""
        for worker in self.workers:
            while worker.ready and worker not in self.running and (task := self.next_task()) is not None:
                self.send_task(worker, task)
        starting = sum(not worker.ready for worker in self.workers)
        while len(self.workers) < self.max_workers and starting < len(self.pending):
            try:
                worker = WorkerProcess(self.context)
            except Exception as error:
                # The existing workers do all the work, only later.
                if not self.workers:
                    self.fail_pending(error)
                return
            self.workers.append(worker)
            starting += 1
            self.selector.register(worker.inbox, selectors.EVENT_READ, worker)
            self.selector.register(worker.sentinel, selectors.EVENT_READ, worker)

    def send_task(self, worker: WorkerProcess, task: WorkerCall) -> None:
        self.running[worker] = task
        try:
            worker.send(task.number, task.call)
        except Exception as error:
            # The system is out of memory or descriptors.
            del self.running[worker]
            task.future.set_exception(error)

    def next_task(self) -> WorkerCall | None:
        """Return the next task that was not cancelled."""
        with self.lock:
            while self.pending:
                task = self.pending.popleft()
                # The future of a task that lost its worker is already running, and can't be set to that twice.
                if task.lost or task.future.set_running_or_notify_cancel():
                    return task
        return None

    def wait(self) -> None:
        """Wait for a reply, a death, a new task or the next deadline, but at most one step; then handle it."""
        busy = [worker for worker in self.workers if worker in self.running or not worker.ready]
        begin = time.monotonic()
        seconds = None
        if busy:
            left = min(map(self.deadline, busy)) - begin
            seconds = max(0.0, min(left, self.timeout / STEPS))
        ready = self.selector.select(seconds)
        # Time for which this process was stopped, or the machine suspended, does not count for the workers.
        stood_still = 0.0 if seconds is None else time.monotonic() - begin - seconds
        for worker in busy:
            worker.since += max(0.0, stood_still)
        for key, _ in ready:
            worker = key.data
            if worker is None:
                with suppress(BlockingIOError):
                    self.alarm.recv(1 << 12)
            elif worker in self.workers:
                self.receive(worker, ended=key.fd == worker.sentinel and worker.process.exitcode is not None)

    def deadline(self, worker: WorkerProcess) -> float:
        return worker.since + self.timeout + (0.0 if worker.ready else START_SECONDS)

    def receive(self, worker: WorkerProcess, *, ended: bool) -> None:
        """Handle a worker's reply, or all remaining replies of a worker that has ended or closed its connection."""
        for reply in worker.replies():
            self.complete(worker, reply)
            if not (ended or worker.gone):
                # A worker runs one call at a time, so there is no second reply.
                return
        if ended or worker.gone:
            self.on_worker_exit(worker)

    def complete(self, worker: WorkerProcess, reply: Reply | BaseException) -> None:
        """Complete the future of a reply, or record that a worker has started."""
        if isinstance(reply, Reply) and reply.number is None:
            worker.ready = True
            self.lost_at_start = 0
            return
        future = self.running.pop(worker).future
        if isinstance(reply, BaseException):
            future.set_exception(reply)
        elif reply.error is not None:
            future.set_exception(reply.error.unpack())
        else:
            future.set_result(reply.result)

    def on_worker_exit(self, worker: WorkerProcess) -> None:
        """Remove a worker that has ended, and submit its task again."""
        self.num_replaced += 1
        self.remove(worker)
        worker.join(GRACE_SECONDS)
        task = self.running.pop(worker, None)
        if task is not None:
            task.lost += 1
            if task.lost < ATTEMPTS:
                with self.lock:
                    self.pending.appendleft(task)
                return
            task.future.set_exception(
                WorkerLostError(
                    f"{task.lost} workers died in a row during this call; the last one, {worker.name}, "
                    f"{worker.describe_exit()}: the call uses too much memory, or crashes"
                )
            )
        elif not worker.ready and worker.process.exitcode == NO_GUARD:
            self.fail_pending(RuntimeError(GUARD_ADVICE))
        elif not worker.ready:
            self.lost_at_start += 1
            # The exit code is None if other code waited for the process.
            was_killed = (worker.process.exitcode or 0) < 0
            if self.lost_at_start >= (KILLED_AT_START if was_killed else ATTEMPTS):
                count, self.lost_at_start = self.lost_at_start, 0
                self.fail_pending(
                    WorkerLostError(
                        f"{count} workers died in a row while they started; the last one "
                        f"{worker.describe_exit()}: see their output"
                    )
                )

    def end_overdue(self) -> None:
        """Kill the workers that take too long, and fail their tasks."""
        now = time.monotonic()
        for worker in list(self.workers):
            task = self.running.get(worker)
            if (task is None and worker.ready) or now < self.deadline(worker):
                continue
            worker.process.kill()
            if task is not None:
                # Before on_worker_exit(), which would submit it again.
                del self.running[worker]
                task.future.set_exception(
                    TimeoutError(
                        f"{worker.name} worked on one call for {self.timeout:g} s and was killed; a stage hangs, or is "
                        "slower than that: use a larger timeout"
                    )
                )
            self.on_worker_exit(worker)

    def fail_pending(self, error: BaseException) -> None:
        while (task := self.next_task()) is not None:
            task.future.set_exception(error)

    def remove(self, worker: WorkerProcess) -> None:
        self.workers.remove(worker)
        self.selector.unregister(worker.inbox)
        self.selector.unregister(worker.sentinel)
        worker.close()

    def end_workers(self) -> None:
        workers = list(self.workers)
        # Workers exit when their mailboxes close. Closing all first gives them the same time for that.
        for worker in workers:
            self.remove(worker)
        end = time.monotonic() + GRACE_SECONDS
        for worker in workers:
            worker.join(max(0.0, end - time.monotonic()))
