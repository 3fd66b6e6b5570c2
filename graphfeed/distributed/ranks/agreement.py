"""What ranks must have in common: the parts that they hold, and the epochs that they begin. They compare both.

A rank with a part of another graph, or with another seed, would give mini-batches that look well and are wrong.
"""

import json
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from graphfeed.datapipes import Datapipe, Ranked, Source
from graphfeed.datapipes.pipeline import find, traverse
from graphfeed.distributed.ranks.messages import Tensors
from graphfeed.loader import AT_BEGIN, find_difference, take_fingerprint

if TYPE_CHECKING:
    from graphfeed.distributed.ranks.peers import Peers

CHECK_SECONDS = 0.2
"""How often one who waits looks whether a rank was lost."""
BEGIN_SECONDS = 5.0
"""How long a rank waits for others to begin their first epoch too. One that begins alone goes on then."""
APART_SECONDS = 1.0
"""How long those who began different things wait for each other: two threads may begin in another order elsewhere."""
TELL_SECONDS = 1.0
"""How long a rank waits until the others know why it fails."""

ALIVE: "weakref.WeakSet[Peers]" = weakref.WeakSet()
RUNS: "weakref.WeakKeyDictionary[Datapipe, dict[str, Any]]" = weakref.WeakKeyDictionary()
"""What decides which seeds a pipeline has, and what is sampled for them, by the names of stages."""


class Agreement:
    """What each rank says of its parts and of its epochs.

    Parts are compared before they are first read; this waits for all ranks. Epochs can't be waited for, as a rank may
    begin none, or leave one early. Of any two ranks, one may be ahead: it began all that the other one did. If each of
    them began something that the other one did not, such as the same epoch with another seed, they fail.

    Args:
        peers: The ranks.
    """

    def __init__(self, peers: "Peers") -> None:
        self.peers = peers
        self._changed = threading.Condition()
        self._parts: list[dict[str, dict[str, Any]]] = [{} for _ in range(peers.world_size)]
        self._runs: list[dict[str, set[int]]] = [{} for _ in range(peers.world_size)]
        """For each rank the epochs that it began, by pipeline and seed as JSON."""
        self._agreed: set[str] = set()
        self._name = peers.serve("agreement", self._receive)
        if peers.world_size > 1:
            ALIVE.add(peers)

    def state_part(self, name: str, said: Mapping[str, Any]) -> None:
        """Tell the other ranks, without waiting, what this one holds under a name that all ranks use."""
        self._tell({"part": name, "said": dict(said)})

    def check_part(self, name: str) -> None:
        """Raise unless all ranks hold parts that belong together, and none was lost; the first call waits for all.

        Raises:
            RankLostError: A rank was lost.
            RuntimeError: A rank has ended, and never had such a part.
            TimeoutError: A rank did not make its part.
            ValueError: Ranks hold parts that don't belong together.
        """
        self.peers.check()
        if name in self._agreed:
            return
        limit = self.peers.start_timeout + self.peers.timeout
        give_up = time.monotonic() + limit
        with self._changed:
            while missing := [rank for rank, parts in enumerate(self._parts) if name not in parts]:
                self.peers.check()
                if ended := sorted(set(missing).intersection(self.peers.leaving)):
                    raise RuntimeError(f"ranks {ended} have ended, and made no {name!r}; all ranks must make the same")
                if time.monotonic() > give_up:
                    raise TimeoutError(
                        f"ranks {missing} did not make {name!r} for {limit:g} s; all ranks must make their graphs and "
                        "features in parts, in the same order"
                    )
                self._changed.wait(CHECK_SECONDS)
            check_equal(name, [parts[name] for parts in self._parts])
        self._agreed.add(name)

    def begin(self, run: Mapping[str, Any], epochs: Sequence[int]) -> None:
        """Tell the other ranks that this one begins an epoch, and raise if they don't share it.

        Args:
            run: The seed and the pipeline.
            epochs: Its number. Where a rank goes on in the middle of an epoch, also the next one, as other ranks may
                have finished the epoch before they were stopped.

        Raises:
            RankLostError: A rank was lost.
            ValueError: A rank has another seed, another pipeline, or began another epoch.
        """
        self.peers.meet()
        self._tell({"run": json.dumps(run, sort_keys=True), "epochs": epochs})
        begun = time.monotonic()
        with self._changed:
            while True:
                self.peers.check()
                apart = [text for rank in range(self.peers.world_size) if (text := self._compare(rank))]
                silent = [rank for rank, runs in enumerate(self._runs) if not runs and rank not in self.peers.leaving]
                limit = BEGIN_SECONDS if silent else APART_SECONDS
                if not (apart or silent) or time.monotonic() > begun + limit:
                    break
                self._changed.wait(CHECK_SECONDS)
        if apart:
            wait(self._tell({"failed": apart[0]}).values(), TELL_SECONDS)
            raise ValueError(apart[0])

    def _tell(self, said: dict[str, Any]) -> Mapping[int, Any]:
        """Send something to all ranks, this one included; return the futures of the others' answers."""
        own = self.peers.rank
        options = {"rank": own, **said}
        others: dict[int, Tensors] = {rank: {} for rank in range(self.peers.world_size) if rank != own}
        futures = self.peers.ask(self._name, options, others)
        self._receive(options, {})
        return futures

    def _receive(self, options: Mapping[str, Any], _: Mapping[str, torch.Tensor]) -> Tensors:
        """Keep what a rank says."""
        rank = options["rank"]
        with self._changed:
            if "failed" in options:
                self.peers.refuse(ValueError(options["failed"]))
            elif "part" in options:
                self._parts[rank][options["part"]] = options["said"]
            else:
                self._runs[rank].setdefault(options["run"], set()).update(options["epochs"])
            self._changed.notify_all()
        return {}

    def _compare(self, rank: int) -> str:
        """Say what is wrong if this rank and another one each began something that the other one did not; else ""."""
        own, theirs = self._runs[self.peers.rank], self._runs[rank]
        mine, others = next(only_in(own, theirs), None), next(only_in(theirs, own), None)
        if mine is None or others is None:
            return ""
        (run, epoch), (other, other_epoch) = mine, others
        return describe_difference((self.peers.rank, json.loads(run), epoch), (rank, json.loads(other), other_epoch))


def only_in(one: dict[str, set[int]], other: dict[str, set[int]]) -> Iterator[tuple[str, int | None]]:
    """Yield the runs and their epochs that one rank began and another one did not, the latest first."""
    for run in reversed(one):
        if run not in other:
            yield run, None
        else:
            yield from ((run, epoch) for epoch in sorted(one[run] - other[run], reverse=True))


def describe_difference(one: tuple[int, Any, int | None], other: tuple[int, Any, int | None]) -> str:
    """Return what two ranks do otherwise, and what would be right; each is a rank, its run and its epoch."""
    (rank, run, epoch), (other_rank, other_run, other_epoch) = one, other
    if run["seed"] != other_run["seed"]:
        return (
            f"rank {rank} makes mini-batches with seed {run['seed']}, but rank {other_rank} with seed "
            f"{other_run['seed']}; give the DataLoader of all ranks the same seed, and load the same state"
        )
    difference = find_difference(other_run["pipeline"], run["pipeline"])
    if difference is not None:
        return (
            f"the pipeline of rank {other_rank} is another one than that of rank {rank}: {difference}; write the same "
            "pipeline on all ranks"
        )
    return (
        f"rank {rank} has begun epoch {epoch}, but rank {other_rank} epoch {other_epoch}; iterate the loader equally "
        "often on all ranks, set the same epochs, and load states that were saved together"
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


def begin_epoch(pipe: Datapipe, seed: int, epoch: int, index: int) -> None:
    """Compare an epoch with those of other ranks, if the pipeline shares its mini-batches among ranks with parts."""
    for source in find(pipe, Ranked):
        for peers in list(ALIVE):
            same_ranks = source.rank_and_size == (peers.rank, peers.world_size)  # type: ignore[attr-defined]
            if same_ranks and not peers.ended:
                if pipe not in RUNS:
                    RUNS[pipe] = deciding_fields(pipe)
                epochs = [epoch, epoch + 1] if index else [epoch]
                with suppress(RuntimeError):  # closed in this moment, or those of the process that forked this one
                    peers.agreement.begin({"seed": seed, "pipeline": RUNS[pipe]}, epochs)
        return


def deciding_fields(pipe: Datapipe) -> dict[str, Any]:
    """Return the fingerprint of the stages that say which seeds there are, and what is sampled for them.

    Stages of users may differ: one may have a rank's device, or a path. Graphs are compared as parts; one that was made
    of lists of a rank's own edges may not know how many there are on all ranks.
    """
    deciding = {
        type(stage).__name__
        for stage in traverse(pipe)
        if isinstance(stage, Source) or stage.needs_key or stage.reads_graph
    }
    return {
        name: {field: text for field, text in fields.items() if field != "graph"}
        for name, fields in take_fingerprint(pipe).items()
        if name.partition(" ")[2] in deciding
    }


AT_BEGIN.append(begin_epoch)
