"""Checks what all ranks must have in common: their parts, and the pipelines and random seeds of their first runs.

With a part of another graph, or another random seed, mini-batches would look plausible but be wrong.
"""

import json
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from graphfeed.datapipes import Datapipe, DistributedItemSampler, Source, length
from graphfeed.datapipes.pipeline import find, traverse
from graphfeed.distributed.ranks.membership.heartbeat import LostError
from graphfeed.distributed.ranks.transport.messages import Tensors
from graphfeed.loader import RUN_LISTENERS, Progress, find_difference, take_fingerprint
from graphfeed.ops.process import Changes, current_limits

if TYPE_CHECKING:
    from graphfeed.distributed.ranks.peers import Peers

CHECK_SECONDS = 0.2
"""Interval at which waiting threads check whether a rank is lost."""

PIPELINES: "weakref.WeakKeyDictionary[Datapipe, str]" = weakref.WeakKeyDictionary()
"""For each pipeline, its options that determine seeds and samples, as JSON."""


class RunComparison:
    """Compares parts and runs among ranks. Names have running numbers, so all ranks must create things in one order."""

    # Parts are compared before their first use, which waits for all ranks. Runs can't wait, as a rank may begin none:
    # each rank announces its first run of each pipeline to all others, and the later announcement is compared.
    def __init__(self, peers: "Peers") -> None:
        self.peers = peers
        self._changes = Changes()
        self._parts: dict[str, str] = {}
        """For each part, the name under which its description is requested."""
        self._agreed: set[str] = set()
        self._agreeing = threading.Lock()
        self._begun: list[dict[str, int]] = [{} for _ in range(peers.world_size)]
        """For each rank, the random seed of the first run of each pipeline."""
        self._telling = threading.Lock()
        self._latest: tuple[int, Progress, int | None] = (0, Progress(0, 0, done=True), None)
        """Number of runs that this rank has begun; progress of the latest, and its number of mini-batches."""
        self._ended: dict[int, tuple[int, int]] = {}
        """For each rank whose program ended during a run: the number of that run, and its progress."""
        self._name = peers.serve("comparison", self._receive)
        if peers.world_size > 1:
            RUN_LISTENERS.add(self)

    def describe_part(self, name: str, said: Mapping[str, Any]) -> None:
        text = {"said": torch.frombuffer(bytearray(json.dumps(said).encode()), dtype=torch.uint8)}
        self._parts[name] = self.peers.serve(f"part {name}", lambda *_: text)

    def check_part(self, name: str) -> None:
        """Raise if parts of the ranks don't match, or a rank was lost. The first call waits for all ranks."""
        self.peers.check()
        if name in self._agreed:
            return
        with self._agreeing:
            # RuntimeError: a rank has ended without such a part. TimeoutError: a rank did not create it in time.
            answers = dict(self.peers.gather(self._parts[name], {}))
            check_equal(name, [json.loads(bytes(answers[rank]["said"].numpy())) for rank in sorted(answers)])
            self._agreed.add(name)

    def begin_run(self, pipe: Datapipe, seed: int, progress: Progress) -> None:
        """Record a run, and compare it with those of other ranks if they share its mini-batches."""
        total = None
        with suppress(TypeError):  # of unknown length
            total = length(pipe)
        # Runs of any pipeline; `progress` is updated during the run.
        self._latest = (self._latest[0] + 1, progress, total)
        sources = find(pipe, DistributedItemSampler)
        if not sources or self.peers.ended:
            return
        if sources[0].rank_and_size == (self.peers.rank, self.peers.world_size):  # type: ignore[attr-defined]
            if pipe not in PIPELINES:
                PIPELINES[pipe] = json.dumps(deciding_fields(pipe), sort_keys=True)
            with suppress(RuntimeError):  # closed just now, or peers of the process that forked this one
                self.register_run(PIPELINES[pipe], seed)

    def register_run(self, pipeline: str, seed: int) -> None:
        """Announce the first run of a pipeline to the other ranks, and raise if they are known not to share it."""
        self.peers.wait_until_connected()
        with self._telling:
            own = self._begun[self.peers.rank]
            first = not own
            if pipeline not in own:
                self._send({"pipeline": pipeline, "seed": seed})

        # Only a rank's first run waits, so that ranks that begin together raise before their first mini-batch.
        def is_known() -> bool:
            self.peers.check()
            silent = {rank for rank, own in enumerate(self._begun) if pipeline not in own}
            return not first or silent.issubset(self.peers.leaving)

        self._changes.wait_for(is_known, current_limits().peer_seconds, every=CHECK_SECONDS)
        with self._changes.lock:
            different = self._find_other_pipeline(pipeline) if first else ""
        if different:
            self._send({"failed": different})
            self.peers.check()

    def report_end(self) -> None:
        number, progress, total = self._latest
        # A program that ends between two runs is done; during a run, the others may continue without it.
        if not progress.done and progress.index != total:
            with suppress(Exception):  # a lost rank needs no notice
                # Sent at once; responses are not awaited.
                self.peers.gather(self._name, {"rank": self.peers.rank, "ended": [number, progress.index]})

    def check_ended(self) -> None:
        number, progress, _ = self._latest
        for rank, (theirs, index) in list(self._ended.items()):
            # A rank that stops at the same mini-batch as the other one misses nothing.
            if theirs == number and progress.index > index:
                how = f"its program ended after {index} mini-batches of an epoch that continues on other ranks"
                raise LostError(rank, how)

    def _send(self, said: dict[str, Any]) -> None:
        answers = self.peers.gather(self._name, {"rank": self.peers.rank, **said})
        with suppress(ConnectionError, TimeoutError):  # the next mini-batch raises if a rank is lost
            list(answers)  # until all ranks have received it

    def _receive(self, options: Mapping[str, Any], _: Mapping[str, torch.Tensor]) -> Tensors:
        """Store the announcement of a rank."""
        rank = options["rank"]
        with self._changes.lock:
            if "ended" in options:
                self._ended[rank] = tuple(options["ended"])
            elif "failed" in options:
                self.peers.refuse(ValueError(options["failed"]))
            else:
                self._record_start(rank, options["pipeline"], options["seed"])
        self._changes.notify_all()
        return {}

    def _record_start(self, rank: int, pipeline: str, seed: int) -> None:
        """Store the random seed of a rank for a pipeline, and compare it with those of other ranks."""
        self._begun[rank][pipeline] = seed
        own = self.peers.rank
        for other in range(self.peers.world_size) if rank == own else [own]:
            theirs = self._begun[other].get(pipeline, seed)
            if theirs != seed:
                self.peers.refuse(
                    ValueError(
                        f"rank {rank} produces mini-batches with seed {seed}, but rank {other} with seed {theirs}; "
                        "give the DataLoader of all ranks the same seed, and load the same state"
                    )
                )

    def _find_other_pipeline(self, pipeline: str) -> str:
        """Describe how a rank's pipelines differ if it has only begun other ones; else return ""."""
        for rank, begun in enumerate(self._begun):
            known = next(iter(begun), pipeline) if pipeline not in begun else pipeline
            if difference := find_difference(json.loads(known), json.loads(pipeline)):
                return (
                    f"the pipelines of rank {rank} and rank {self.peers.rank} differ: {difference}; "
                    "use the same pipeline on all ranks"
                )
        return ""


def check_equal(name: str, said: list[dict[str, Any]]) -> None:
    """Raise unless all ranks describe a part equally."""
    for field in said[0]:
        by_value: dict[str, list[int]] = {}
        for rank, fields in enumerate(said):
            by_value.setdefault(json.dumps(fields.get(field)), []).append(rank)
        if len(by_value) > 1:
            values = ", and ".join(f"{value} on ranks {ranks}" for value, ranks in by_value.items())
            raise ValueError(
                f"ranks have parts that don't belong together: {field} of {name!r} is {values}; all ranks must open "
                "parts of one partition, or cut them from the same graph by the same assignment, and create the same "
                "graphs and features in the same order"
            )


def deciding_fields(pipe: Datapipe) -> dict[str, Any]:
    """Return the fingerprint of the stages that determine which seeds there are, and what is sampled for them."""
    # User-defined stages may differ: one may contain a rank's device, or a path.
    deciding = {
        type(stage).__name__
        for stage in traverse(pipe)
        if isinstance(stage, Source) or stage.traits.draws or stage.traits.reads_graph
    }
    # Graphs are compared as parts; one built from the local edges of each rank may not know the number of edges on
    # all ranks.
    return {
        name: {field: text for field, text in fields.items() if field != "graph"}
        for name, fields in take_fingerprint(pipe).items()
        if name.partition(" ")[2] in deciding
    }
