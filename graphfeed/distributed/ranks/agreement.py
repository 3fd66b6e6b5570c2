"""Checks that all ranks have opened the same parts, and begin the same runs.

A rank with a part of another graph, or with another seed, would give mini-batches that look well and are wrong.
"""

import json
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

from graphfeed.datapipes import Datapipe, Ranked, Source, length
from graphfeed.datapipes.pipeline import find, traverse
from graphfeed.distributed.ranks.heartbeat import LostError
from graphfeed.distributed.ranks.messages import Tensors
from graphfeed.loader import Progress, find_difference, take_fingerprint

if TYPE_CHECKING:
    from graphfeed.distributed.ranks.peers import Peers

CHECK_SECONDS = 0.2
"""How often one who waits looks whether a rank was lost."""
BEGIN_SECONDS = 5.0
"""How long the first run of a rank waits until the others begin one of the same pipeline. It goes on alone then."""

ALIVE: "weakref.WeakSet[Peers]" = weakref.WeakSet()
PIPELINES: "weakref.WeakKeyDictionary[Datapipe, str]" = weakref.WeakKeyDictionary()
"""What decides which seeds a pipeline has, and what is sampled for them, as JSON."""


class Start(NamedTuple):
    """Where a run begins, and by which seed it draws."""

    seed: int
    epoch: int
    position: int
    """The index of the first mini-batch."""


Runs: TypeAlias = dict[tuple[int, int], Start]
"""The runs of a pipeline, by how many there were: of whole epochs, and since the last one, from the middle of one."""


class Agreement:
    """What each rank says of its parts and of its runs."""

    # Parts are compared before they are first read; this waits for all ranks. Runs can't be waited for, as a rank may
    # begin none, or leave one early. So each rank tells all others as it begins one, and the runs of a pipeline are
    # compared by their number, wherever the later word comes: in any order, and without a clock.
    def __init__(self, peers: "Peers") -> None:
        self.peers = peers
        self._changed = threading.Condition()
        self._parts: dict[str, tuple[str, dict[str, Any]]] = {}
        """What this rank says of each part, and the name by which others ask for that."""
        self._agreed: set[str] = set()
        self._agreeing = threading.Lock()
        self._runs: list[dict[str, Runs]] = [{} for _ in range(peers.world_size)]
        """For each rank its runs, by pipeline."""
        self._telling = threading.Lock()
        self._latest: tuple[int, Progress, int | None] = (0, Progress(0, 0, done=True), None)
        """How many runs this rank has begun, how far the latest is, and how many mini-batches it has."""
        self._ended: dict[int, tuple[int, int]] = {}
        """For each rank whose program ended in the middle of a run: the number of that run, and how far it was."""
        self._name = peers.serve("agreement", self._receive)
        if peers.world_size > 1:
            ALIVE.add(peers)

    def state_part(self, name: str, said: Mapping[str, Any]) -> None:
        text = {"said": torch.frombuffer(bytearray(json.dumps(said).encode()), dtype=torch.uint8)}
        # The other ranks ask for it, by a name that all use.
        self._parts[name] = self.peers.serve(f"part {name}", lambda *_: text), dict(said)

    def check_part(self, name: str) -> None:
        """Raise unless all ranks hold parts that belong together, and none was lost; the first call waits for all."""
        self.peers.check()
        if name in self._agreed:
            return
        with self._agreeing:
            # A RuntimeError says that a rank has ended without such a part, a TimeoutError that one did not make it.
            asked, own = self._parts[name]
            said = {self.peers.rank: own}
            for rank, answer in self.peers.ask(asked, {}, self._others()).items():
                said[rank] = json.loads(bytes(self.peers.wait(rank, answer)["said"].numpy()))
            check_equal(name, [said[rank] for rank in sorted(said)])
            self._agreed.add(name)

    def begin(self, pipeline: str, start: Start) -> None:
        """Tell the other ranks that this one begins a run, and raise if it is known that they don't share it."""
        # Of two ranks that differ, the one whose word comes later raises here, the other one with its next mini-batch.
        self.peers.meet()
        with self._telling:  # so that all ranks get the runs of this one in their order
            first = not self._runs[self.peers.rank]
            self._tell({"pipeline": pipeline, "start": start})
        # Only the first run waits, so that ranks that begin together raise before their first mini-batch.
        give_up = time.monotonic() + BEGIN_SECONDS
        with self._changed:
            self.peers.check()
            while first and time.monotonic() < give_up:
                if {rank for rank, runs in enumerate(self._runs) if pipeline not in runs}.issubset(self.peers.leaving):
                    break
                self._changed.wait(CHECK_SECONDS)
                self.peers.check()
            different = self._find_other_pipeline(pipeline) if first else ""
        if different:
            self._tell({"failed": different})
            self.peers.check()

    def note_run(self, progress: Progress, total: int | None) -> None:
        # A run of any pipeline. `progress` tells at each moment how far it is; `total` is None if nobody knows it.
        self._latest = (self._latest[0] + 1, progress, total)

    def tell_end(self) -> None:
        number, progress, total = self._latest
        # A program that ends between two runs is done; in the middle of one, others may go on without it.
        if not progress.done and progress.index != total:
            with suppress(Exception):  # who is lost needs no word
                said = {"rank": self.peers.rank, "ended": [number, progress.index]}
                self.peers.ask(self._name, said, self._others())

    def check_ended(self) -> None:
        number, progress, _ = self._latest
        for rank, (theirs, index) in list(self._ended.items()):
            # A rank that stops at the same mini-batch as the other one misses nothing.
            if theirs == number and progress.index > index:
                how = f"its program ended after {index} mini-batches of an epoch that goes on"
                raise LostError(rank, how)

    def _others(self) -> dict[int, Tensors]:
        return {rank: {} for rank in range(self.peers.world_size) if rank != self.peers.rank}

    def _tell(self, said: dict[str, Any]) -> None:
        options = {"rank": self.peers.rank, **said}
        answers = self.peers.ask(self._name, options, self._others())
        self._receive(options, {})
        # An answer says that the rank has it.
        for rank, answer in answers.items():
            with suppress(ConnectionError, TimeoutError):  # the next mini-batch says that a rank is lost
                self.peers.wait(rank, answer)

    def _receive(self, options: Mapping[str, Any], _: Mapping[str, torch.Tensor]) -> Tensors:
        """Keep what a rank says."""
        rank = options["rank"]
        with self._changed:
            if "ended" in options:
                self._ended[rank] = tuple(options["ended"])
            elif "failed" in options:
                self.peers.refuse(ValueError(options["failed"]))
            else:
                self._note_run(rank, options["pipeline"], Start(*options["start"]))
            self._changed.notify_all()
        return {}

    def _note_run(self, rank: int, pipeline: str, start: Start) -> None:
        """Keep where a run of a rank begins, and compare it with those of the same number that are known here."""
        runs = self._runs[rank].setdefault(pipeline, {})
        whole, middle = next(reversed(runs), (0, 0))
        # The number of a run does not depend on when words come, as each rank sends its own in their order.
        number = (whole, middle + 1) if start.position else (whole + 1, 0)
        runs[number] = start
        own = self.peers.rank
        for other in range(self.peers.world_size) if rank == own else [own]:
            theirs = find_other_start(runs, self._runs[other].get(pipeline, {}), number)
            if theirs is not None:
                self.peers.refuse(ValueError(describe_difference(rank, start, other, theirs)))

    def _find_other_pipeline(self, pipeline: str) -> str:
        """Say which rank has begun only runs of other pipelines, and how they differ; else ""."""
        for rank, runs in enumerate(self._runs):
            known = next(iter(runs), pipeline) if pipeline not in runs else pipeline
            if difference := find_difference(json.loads(known), json.loads(pipeline)):
                return (
                    f"the pipeline of rank {rank} is another one than that of rank {self.peers.rank}: {difference}; "
                    "write the same pipeline on all ranks"
                )
        return ""


def find_other_start(runs: Runs, others: Runs, number: tuple[int, int]) -> Start | None:
    """Return where another rank begins the run of a number, if it has begun it elsewhere than this one."""
    whole, middle = number
    before, after = (whole - 1, 1), (whole + 1, 0)
    if number in others:
        return others[number] if others[number] != runs[number] else None
    # Where a rank goes on in the middle of an epoch, another one may have finished it before both were stopped.
    if middle == 1 and after in others:
        return others[after] if others[after] != next_epoch(runs[number]) else None
    if middle == 0 and before in others and before not in runs:
        return others[before] if next_epoch(others[before]) != runs[number] else None
    return None


def next_epoch(start: Start) -> Start:
    return Start(start.seed, start.epoch + 1, 0)


def describe_difference(rank: int, start: Start, other_rank: int, other: Start) -> str:
    """Return how the runs of two ranks differ, and what would be right."""
    if start.seed != other.seed:
        return (
            f"rank {rank} makes mini-batches with seed {start.seed}, but rank {other_rank} with seed {other.seed}; "
            "give the DataLoader of all ranks the same seed, and load the same state"
        )
    return (
        f"rank {rank} has begun epoch {start.epoch} at index {start.position}, but rank {other_rank} epoch "
        f"{other.epoch} at index {other.position}; iterate the loader equally often on all ranks, set the same epochs, "
        "and load states that were saved together"
    )


def check_equal(name: str, said: list[dict[str, Any]]) -> None:
    """Raise unless all ranks say the same of their parts."""
    for field in said[0]:
        by_value: dict[str, list[int]] = {}
        for rank, fields in enumerate(said):
            by_value.setdefault(json.dumps(fields.get(field)), []).append(rank)
        if len(by_value) > 1:
            values = ", and ".join(f"{value} on ranks {ranks}" for value, ranks in by_value.items())
            raise ValueError(
                f"ranks hold parts that don't belong together: {field} of {name!r} is {values}; let all ranks open "
                "parts of one partition, or cut them from the same graph by the same assignment, and make the same "
                "graphs and features in the same order"
            )


def begin_run(pipe: Datapipe, seed: int, progress: Progress) -> None:
    """Compare a run with those of other ranks, if the pipeline shares its mini-batches among ranks with parts.

    `progress` tells at each moment how far the run is.
    """
    total = None
    with suppress(TypeError):  # of unknown length
        total = length(pipe) if ALIVE else None
    for peers in list(ALIVE):
        peers.agreement.note_run(progress, total)
    for source in find(pipe, Ranked):
        for peers in list(ALIVE):
            same_ranks = source.rank_and_size == (peers.rank, peers.world_size)  # type: ignore[attr-defined]
            if same_ranks and not peers.ended:
                if pipe not in PIPELINES:
                    PIPELINES[pipe] = json.dumps(deciding_fields(pipe), sort_keys=True)
                with suppress(RuntimeError):  # closed in this moment, or those of the process that forked this one
                    peers.agreement.begin(PIPELINES[pipe], Start(seed, progress.epoch, progress.index))
        return


def deciding_fields(pipe: Datapipe) -> dict[str, Any]:
    """Return the fingerprint of the stages that say which seeds there are, and what is sampled for them."""
    # Stages of users may differ: one may have a rank's device, or a path.
    deciding = {
        type(stage).__name__
        for stage in traverse(pipe)
        if isinstance(stage, Source) or stage.needs_key or stage.reads_graph
    }
    # Graphs are compared as parts; one that was made of lists of a rank's own edges may not know how many there are on
    # all ranks.
    return {
        name: {field: text for field, text in fields.items() if field != "graph"}
        for name, fields in take_fingerprint(pipe).items()
        if name.partition(" ")[2] in deciding
    }
