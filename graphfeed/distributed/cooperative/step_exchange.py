"""All-to-all between ranks, matched by step number, in whichever order each rank comes to its steps."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import torch

from graphfeed.distributed.ranks.messages import Tensors
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.ops.process import Changes

Tag: TypeAlias = tuple[int, int, int]
"""Names a step: the run of the loader, the mini-batch, and the step of that mini-batch."""

CHECK_SECONDS = 0.2
"""How often one who waits looks whether a rank was lost."""

SAME = "all ranks must make their loaders in the same order, and iterate them as often and as far"


class StepExchange:
    """An all-to-all of tensors per step: each rank sends every other one its part, and receives theirs."""

    # Several threads may be at several steps at the same time. All ranks use the same name for what is traded.
    def __init__(self, peers: Peers, name: str) -> None:
        self.peers = peers
        self._given: dict[Tag, dict[int, tuple[str, Tensors]]] = {}
        self._runs = [0] * peers.world_size  # the first one that each rank has not left, as far as this one knows
        self._changes = Changes()
        self._name = peers.serve(name, self._receive)

    def trade(self, tag: Tag, parts: Sequence[Tensors], draws: str = "") -> list[Tensors]:
        """Send each rank a part, and return what each rank sent, this one included; wait for all of them."""
        own = self.peers.rank
        self._check([], tag)
        answers = self.peers.gather(self._name, {"tag": tag, "rank": own, "draws": draws}, dict(enumerate(parts)))
        next(answers)  # this rank's own, by which its part is known here
        begin = time.monotonic()

        def take() -> dict[int, tuple[str, Tensors]] | None:
            missing = [rank for rank in range(len(parts)) if rank not in self._given.get(tag, {})]
            if missing:
                self._check(missing, tag, time.monotonic() - begin)
            return None if missing else self._given.pop(tag)

        given_by = self._changes.wait_for(take, every=CHECK_SECONDS) or {}
        list(answers)  # what is sent later, such as that this rank leaves, must not arrive before
        for rank, (said, _) in given_by.items():
            # What the draws depend on: ranks that differ would make a mini-batch that looks well and is wrong.
            if said != draws:
                raise ValueError(
                    f"rank {own} makes joint mini-batch {tag[1]} with {draws}, but rank {rank} with {said}; give the "
                    "DataLoader of all ranks the same seed, and load the same state"
                )
        return [given_by[rank][1] for rank in range(len(parts))]

    def leave(self, run: int) -> None:
        # Ranks that have closed their peers need not be told.
        with suppress(ConnectionError, RuntimeError):
            self.peers.gather(self._name, {"left": run, "rank": self.peers.rank})
        self._begin(self.peers.rank, run + 1)  # which wakes the threads of this one

    def _check(self, missing: Sequence[int], tag: Tag, waited: float = 0.0) -> None:
        """Raise if there is nothing more to wait for."""
        self.peers.check()
        left = [rank for rank in (self.peers.rank, *missing) if self._runs[rank] > tag[0]]
        if left:
            raise RuntimeError(f"ranks {left} have left this epoch, or run two epochs of a loader at the same time")
        ended = sorted(set(missing).intersection(self.peers.leaving))
        if ended:
            raise RuntimeError(f"ranks {ended} have ended before joint mini-batch {tag[1]}; {SAME}")
        limit = self.peers.start_timeout + self.peers.timeout
        if waited > limit:
            raise TimeoutError(f"ranks {missing} did not come to joint mini-batch {tag[1]} for {limit:g} s; {SAME}")

    def _note(self, rank: int, tag: Tag, draws: str, part: Tensors) -> None:
        # A rank that begins another run has left those before it.
        self._begin(rank, tag[0])
        if tag[0] >= min(self._runs):
            self._given.setdefault(tag, {})[rank] = draws, part

    def _begin(self, rank: int, run: int) -> None:
        with self._changes.lock:
            if run > self._runs[rank]:
                self._runs[rank] = run
                # Nobody comes to the steps of runs that all have left.
                oldest = min(self._runs)
                self._given = {tag: parts for tag, parts in self._given.items() if tag[0] >= oldest}
        self._changes.notify_all()

    def _receive(self, options: Mapping[str, Any], part: Mapping[str, torch.Tensor]) -> Tensors:
        with self._changes.lock:
            if "left" in options:
                self._begin(options["rank"], options["left"] + 1)
            else:
                run, index, step = options["tag"]
                self._note(options["rank"], (run, index, step), options["draws"], part)
        self._changes.notify_all()
        return {}
