"""The ranks that hold the parts of a graph: each asks the others, and answers them, in a thread of its own.

The thread takes part in rounds. In each round, every rank sends to every other one what it has to ask and to answer:
one `all_to_all` of sizes, and if anybody sent anything, one of bytes. So an answer comes in the round after its
question, questions of several threads share a round, and a rank answers whatever its own program does meanwhile: it may
train, evaluate, have fewer mini-batches than the others, or none at all. Where nobody asks anything, rounds are rare.
"""

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import distributed

from graphfeed.datapipes import find_rank
from graphfeed.distributed.ranks.agreement import Agreement
from graphfeed.distributed.ranks.bounded_call import call_within
from graphfeed.distributed.ranks.meeting_point import STORE_SECONDS, VISITS, Meeting, MeetingPoint
from graphfeed.distributed.ranks.messages import Tensors, Traffic, concatenate, pack, unpack
from graphfeed.distributed.ranks.program_end import program_failed, watch_program
from graphfeed.distributed.ranks.rank_watch import RESUME, RankLostError
from graphfeed.ops.memory import Bytes, buffers

Answer: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, torch.Tensor]], Tensors]
"""Answers a question: gets its options and its tensors."""

Answers: TypeAlias = dict[int, "Future[Tensors]"]
"""What each rank answers."""

Queue: TypeAlias = "SimpleQueue[Callable[[], None] | None]"
"""The answers that a thread is to give."""

PAUSES = (0.0005, 0.02)
"""The shortest and the longest pause in seconds between rounds while nobody asks anything."""
PAUSE_GROWTH = 1.25
"""Each pause is this much longer than the one before, so that a rank is late by a fifth of the time that it rested."""
LIVENESS_SECONDS = 3.0
"""How long live ranks have to answer after a failure."""


@dataclass
class Mail:
    """The messages that a rank has to send, and the answers that it waits for."""

    outgoing: list[list[Bytes]]
    """By rank."""
    expected: dict[int, "Future[Tensors]"] = field(default_factory=dict)
    """The questions that were not answered yet."""
    early: list[tuple[int, dict[str, Any], Tensors]] = field(default_factory=list)
    """Questions for what this rank has not made yet."""


class Peers:
    """The ranks of the default process group, or those that meet at an address; each of them holds a part.

    One object serves any number of graphs and features. Programs rarely need to make one: those that name none share
    one. All ranks must make their objects in the same order. The constructor does not wait for other ranks; it starts
    a thread, which ends when all ranks have ended their programs or called `close`. Until then it answers the others;
    only if an exception ends this rank's program, it ends at once, and the other ranks fail too. A rank that calls
    `sys.exit` counts as done whatever the status, unless multiprocessing started it.

    Args:
        timeout: After how many seconds without a sign of life another rank counts as lost. One that ended is noticed at
            once; one that compiles kernels is silent meanwhile.
        start_timeout: How many seconds late another rank may be at the start.
        share_memory: Whether ranks on the same machine read each other's parts in shared memory, where nothing is sent.
            The columns of their parts are put together there once, for as much memory as those take; rows of features
            stay single. The order of time, where edges don't have it already, each rank makes for itself, in 8 to 32
            bytes per edge of the whole graph. Without this, or where memory lacks for the columns, such ranks ask each
            other as ranks on other machines do.
        meeting: Where ranks without a process group meet. Connecting is left to the thread.

    Raises:
        RuntimeError: A launcher such as torchrun started several ranks, but there is no process group.
    """

    def __init__(
        self,
        *,
        timeout: float = 120.0,
        start_timeout: float = 600.0,
        share_memory: bool = True,
        meeting: MeetingPoint | None = None,
    ) -> None:
        self.timeout, self.start_timeout, self.share_memory = timeout, start_timeout, share_memory
        self.rank, self.world_size = rank_and_size() if meeting is None else meeting.rank_address[2:]
        self.hosts = [""] * self.world_size
        self.traffic = Traffic()
        self.leaving: list[int] = []  # the ranks that ask nothing any more, as of the last round
        self._process = os.getpid()
        self._answers: dict[str, tuple[Answer, Queue | None]] = {}
        self._scopes: Future[list[str]] = Future()
        self._mail = Mail([[] for _ in range(self.world_size)])
        self._changed = threading.Condition()
        self._ids = count()
        self._closed = False
        self._lost: Exception | None = None
        self._thread: threading.Thread | None = None
        self.agreement = Agreement(self)
        """What all ranks must have in common."""
        if self.world_size > 1:
            watch_program()
            self._meeting = Meeting(self.rank, self.world_size, meeting)
            # Not a daemon: at the end of a program, Python waits until the other ranks need its part no more.
            self._thread = threading.Thread(target=self._run, name="graphfeed-peers")
            self._thread.start()

    def serve(self, subject: str, answer: Answer, *, takes_long: bool = False) -> str:
        """Answer requests of other ranks, of one subject.

        Args:
            subject: What it is, such as "graph".
            answer: Answers a question. It is called in the thread of this object.
            takes_long: Whether to call it in a thread of its own, so that other questions are answered meanwhile.

        Returns:
            The name by which all ranks ask for it: the subject, and how many of the same subject there were before.
        """
        self._check_process()
        with self._changed:
            name = f"{subject} {sum(known.rpartition(' ')[0] == subject for known in self._answers)}"
            queue: Queue | None = None
            # The thread begins now: no program can start one as it ends, and others may ask until then.
            if takes_long and self._thread is not None and self._lost is None:
                queue = SimpleQueue()
                threading.Thread(target=run_calls, args=(queue,), name="graphfeed-peers-answers").start()
            self._answers[name] = answer, queue
            self._changed.notify_all()
        return name

    @property
    def ended(self) -> bool:
        """Whether this rank has closed it, or another one was lost."""
        return self._closed or self._lost is not None

    def refuse(self, error: Exception) -> None:
        """Let whatever asks other ranks from now on fail by an error; this rank still answers them."""
        self._lost = self._lost or error

    def check(self) -> None:
        """Raise if a rank was lost or refused, or all have closed theirs."""
        if self._lost is not None:
            raise self._lost

    def ranks_here(self) -> list[int]:
        """Return the ranks on this machine whose memory this one can read, itself included; wait until all have begun.

        Raises:
            RankLostError: A rank was lost.
            TimeoutError: A rank did not begin within `start_timeout`.
        """
        if self.world_size == 1 or not self.share_memory:
            return [self.rank]
        scopes = self.meet()
        return [rank for rank, scope in enumerate(scopes) if rank == self.rank or scope == scopes[self.rank] != ""]

    def meet(self) -> list[str]:
        """Wait until all ranks have begun; return what `memory_scope` returned on each."""
        self._check_process()
        return self._scopes.result(self.start_timeout + self.timeout)

    def ask(self, name: str, options: Mapping[str, Any], questions: Mapping[int, Tensors]) -> Answers:
        """Send requests to other ranks; a rank answers its own without this.

        Args:
            name: What `serve` returned.
            options: What is asked, in what JSON can hold.
            questions: What each rank is asked for.

        Returns:
            A future of the answer of each rank. Wait for it by `wait`.
        """
        messages = []
        for rank, tensors in questions.items():
            self._check_process()
            number = next(self._ids)
            messages.append((rank, number, pack({"id": number, "name": name, "options": options}, tensors)))
        futures: Answers = {}
        with self._changed:
            if self._lost is not None and messages:
                raise self._lost
            self.traffic.exchanges += bool(messages)
            for rank, number, message in messages:
                futures[rank] = self._mail.expected[number] = Future()
                self._mail.outgoing[rank].append(message)
            self._changed.notify_all()
        return futures

    def wait(self, rank: int, future: "Future[Tensors]") -> Tensors:
        """Return an answer.

        Raises:
            RankLostError: A rank was lost.
            RuntimeError: The rank could not answer.
            TimeoutError: The rank has not made, within `start_timeout`, what it was asked for.
        """
        try:
            return future.result(self.start_timeout + self.timeout)
        except TimeoutError as error:
            if future.done():  # ranks were missing at the start
                raise
            raise TimeoutError(
                f"rank {rank} {self.hosts[rank]} did not answer for {self.start_timeout + self.timeout:g} s; "
                "all ranks must make their graphs and features in parts, in the same order"
            ) from error

    def close(self) -> None:
        """Announce, without waiting, that this rank sends no more requests. It answers others until all have closed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self, timeout: float | None = None) -> None:
        """Wait until all ranks have closed theirs, or some seconds have passed."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _check_process(self) -> None:
        """Raise in a forked process, where the thread that reaches other ranks is missing."""
        if self.world_size > 1 and os.getpid() != self._process:
            raise RuntimeError(f"a fork of process {self._process} can't reach other ranks; sample and fetch there")

    def _run(self) -> None:
        """Take part in rounds until nobody needs any."""
        try:
            self.hosts, scopes = self._meeting.gather(self.start_timeout, self.timeout)
            self._scopes.set_result(scopes)
            seconds = timedelta(seconds=self.timeout)
            group = distributed.ProcessGroupGloo(self._meeting.store, self.rank, self.world_size, seconds)
            pause: float | None = PAUSES[0]
            while pause is not None:
                pause = self._take_part(group, pause)
            self._fail(RuntimeError("the peers are closed; make others"))
        except Exception as error:
            self._fail(self._name_lost(error))

    def _take_part(self, group: Any, pause: float) -> float | None:
        """Take part in one round; return the pause before the next one, None if there is none."""
        early, self._mail.early = self._mail.early, []
        for sender, head, tensors in early:
            self._answer(sender, head, tensors)
        with self._changed:
            # Whoever waits for an answer goes on: the others come as soon as they have it.
            if not any(self._mail.outgoing) and not self._mail.expected:
                self._changed.wait(pause)
            sent, self._mail.outgoing = self._mail.outgoing, [[] for _ in range(self.world_size)]
            ended = not threading.main_thread().is_alive()
            leaving = (self._closed or ended) and not self._mail.expected
        if ended and program_failed():
            return None  # the program failed: the process ends, so that the other ranks and the launcher notice
        # The first all_to_all has three numbers for each rank: the bytes that it gets in the second, whether there is
        # a second (if anybody sends anything), and whether this rank is done.
        sizes = [sum(message.size for message in messages) for messages in sent]
        own = np.array([[size, sum(sizes), leaving] for size in sizes], dtype=np.int64)
        others = np.empty_like(own)
        group.alltoall_base(torch.from_numpy(others), torch.from_numpy(own), [], []).wait()
        arriving, leave = others[:, 0].tolist(), np.flatnonzero(others[:, 2]).tolist()
        if not others[:, 1].any():
            self.leaving = leave
            return None if len(leave) == self.world_size else min(PAUSE_GROWTH * pause, PAUSES[1])
        given = concatenate([message for messages in sent for message in messages])
        self.traffic.bytes_sent += given.size
        received = buffers.empty(sum(arriving), torch.uint8).numpy()
        group.alltoall_base(torch.from_numpy(received), torch.from_numpy(given), arriving, sizes).wait()
        self._open(received, arriving)
        self.leaving = leave
        return PAUSES[0]

    def _open(self, received: Bytes, sizes: list[int]) -> None:
        """Answer the questions that arrived, and pass on the answers."""
        end = 0
        for sender, size in enumerate(sizes):
            end += size
            for head, tensors in unpack(received[end - size : end]):
                if "name" in head:
                    self._answer(sender, head, tensors)
                    continue
                with self._changed:
                    future = self._mail.expected.pop(head["id"])
                if "error" in head:
                    future.set_exception(RuntimeError(f"rank {sender} {self.hosts[sender]} failed: {head['error']}"))
                else:
                    future.set_result(tensors)

    def _answer(self, sender: int, head: dict[str, Any], tensors: Tensors) -> None:
        """Answer one question."""
        missing = head["name"] not in self._answers
        if missing and not self._closed and threading.main_thread().is_alive():
            self._mail.early.append((sender, head, tensors))
            return
        answer, queue = (refuse, None) if missing else self._answers[head["name"]]
        call = partial(self._reply, answer, sender, head, tensors)
        if queue is None:
            call()
        else:
            queue.put(call)

    def _reply(self, answer: Answer, sender: int, head: dict[str, Any], tensors: Tensors) -> None:
        """Call what answers a question, and send what it returns."""
        try:
            message = pack({"id": head["id"]}, answer(head["options"], tensors))
        except Exception as error:
            message = pack({"id": head["id"], "error": f"{type(error).__name__}: {error}"}, {})
        with self._changed:
            self._mail.outgoing[sender].append(message)
            self._changed.notify_all()

    def _name_lost(self, error: Exception) -> Exception:
        """Return an error that names the lost ranks, as far as the others can tell."""
        if isinstance(error, OSError):
            return error
        try:
            find = partial(self._meeting.watch.find_missing, LIVENESS_SECONDS)
            missing = call_within(LIVENESS_SECONDS + STORE_SECONDS, find, "the store did not answer")
            lost = ", ".join(f"rank {rank} {self.hosts[rank]}" for rank in missing) or "a connection between ranks"
        except Exception:
            lost = "the rank with the store of the process group (rank 0, or torchrun's agent)"
        lost_error = RankLostError(
            f"{lost} is lost: it ended, or gave no sign of life for {self.timeout:g} s; {RESUME}"
        )
        lost_error.__cause__ = error
        return lost_error

    def _fail(self, error: Exception) -> None:
        """Set an error for all questions that wait, and for those to come."""
        with self._changed:
            self._lost = self._lost or error
            expected, self._mail.expected = self._mail.expected, {}
            for _, queue in self._answers.values():
                if queue is not None:
                    queue.put(None)
        for future in expected.values():
            future.set_exception(error)
        if not self._scopes.done():
            self._scopes.set_exception(error)


def refuse(*_: object) -> Tensors:
    """Answer what was asked of a rank that has ended without making it."""
    raise RuntimeError("it has ended, and made no such graph, feature or loader; all ranks must make the same")


def run_calls(queue: Queue) -> None:
    """Call what comes in a queue, until None does."""
    while (call := queue.get()) is not None:
        call()
        del call  # and what it holds


def rank_and_size() -> tuple[int, int]:
    """Return the rank and the world size of this process; without a process group, 0 and 1."""
    rank = find_rank()
    if rank is None and (launched := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise RuntimeError(
            f"WORLD_SIZE says that {launched} processes were launched, but no process group is initialised; "
            "call torch.distributed.init_process_group first"
        )
    return rank or (0, 1)


SHARED: "weakref.WeakKeyDictionary[Any, Peers]" = weakref.WeakKeyDictionary()
"""The peers of each process group, for graphs and features that name none."""


def peers_at(meeting: MeetingPoint, timeout: float) -> Peers:
    """Return the peers that meet at an address; a call after they have ended makes others, and its timeout holds."""
    visits = VISITS[meeting.rank_address]
    if visits.peers is None or visits.peers.ended:
        visits.peers = Peers(timeout=timeout, meeting=meeting)
    peers: Peers = visits.peers
    return peers


def shared_peers() -> Peers:
    """Return the peers that all graphs and features share, over the default process group."""
    rank_and_size()
    group = distributed.group.WORLD if distributed.is_available() else None
    if group is None:
        return Peers()
    if group not in SHARED or SHARED[group].ended:
        SHARED[group] = Peers()
    return SHARED[group]
