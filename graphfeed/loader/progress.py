"""How far an epoch is, and the bar that shows it."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Protocol, runtime_checkable

from graphfeed.datapipes import Datapipe, Ranked, length
from graphfeed.datapipes.pipeline import find
from graphfeed.loader.fingerprint import Fingerprint, find_difference
from graphfeed.loader.profile import timed
from graphfeed.ops.arguments import brief, check_count
from graphfeed.ops.process import ProgressBar, import_optional


@runtime_checkable
class ReadsOrder(Protocol):
    """A source that reads the order of an epoch from somewhere else, which may give another one the next time."""

    def digest_order(self) -> str:
        """Return a digest of the order of the epoch that the source was keyed for."""


@dataclass
class Progress:
    """How far an epoch is."""

    epoch: int
    index: int
    """The number of mini-batches yielded."""
    done: bool = False
    order: str | None = None
    """A digest of the order of the epoch, where a source reads it from somewhere else."""
    thread: int | None = None
    """The thread that took the latest mini-batch."""

    def note_order(self, pipe: Datapipe) -> None:
        """Take the digest of the order that the sources of an epoch have read; refuse another one than the state's."""
        digests = [source.digest_order() for source in find(pipe, ReadsOrder)]  # type: ignore[attr-defined]
        order = " ".join(digests) or None
        if self.index > 0 and self.order is not None and order != self.order:
            raise ValueError(
                f"the sampler gives another order of epoch {self.epoch} than the one in state_dict, so seeds would be "
                "lost and repeated; give its generator the state that it had before that epoch, or let the sampler "
                "draw from torch's global generator, or remove 'order' from the state to go on all the same"
            )
        self.order = order


def check_state(state_dict: Mapping[str, Any], fingerprint: Fingerprint, given_seed: int | None, pipe: Datapipe) -> int:
    """Raise unless a state belongs to a loader; return the index to go on at. See `DataLoader.load_state_dict`."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"state_dict must be a dict, as state_dict() returns it, but is {brief(state_dict)}")
    position = {name: value for name, value in state_dict.items() if name not in ("fingerprint", "order")}
    is_one = set(position) - {"ranks"} == {"seed", "epoch", "index"}
    if not is_one or not all(type(value) is int for value in position.values()):
        raise ValueError(f"state_dict must hold the ints seed, epoch and index, but is {brief(position)}")
    check_count("epoch of state_dict", position["epoch"], 0)
    check_count("index of state_dict", position["index"], 0)
    ranks, total = count_ranks(pipe) or 1, count_rounds(pipe)
    # A state that says nothing of ranks is of as many as share this pipeline.
    check_count("ranks of state_dict", position.setdefault("ranks", ranks), 1)
    difference = find_difference(state_dict.get("fingerprint", fingerprint), fingerprint)
    if difference is not None:
        raise ValueError(
            f"state_dict comes from another pipeline: {difference}; build the pipeline as it was, or remove "
            "'fingerprint' from the state to go on all the same"
        )
    if given_seed is not None and position["seed"] != given_seed:
        raise ValueError(
            f"state_dict is of seed {position['seed']}, but this loader was given seed {given_seed}; "
            "leave its seed out, or give it the same"
        )
    made = position["index"] * position["ranks"]
    if made % ranks:
        raise ValueError(
            f"state_dict is of {position['ranks']} ranks, whose {made} mini-batches of the epoch are no multiple of "
            f"the {ranks} ranks here, so that some would be lost or repeated; go on with as many ranks as before, with "
            f"another divisor of {made}, or from the end of an epoch"
        )
    index: int = made // ranks
    if total is not None and index > max(total, 1):
        raise ValueError(
            f"index of state_dict is {index}, but an epoch has {total} mini-batches; the state comes from another "
            "pipeline"
        )
    return index


def count_ranks(pipe: Datapipe) -> int:
    """Return how many ranks share the mini-batches of a pipeline; 0 if its source knows no ranks."""
    return max((source.rank_and_size[1] for source in find(pipe, Ranked)), default=0)  # type: ignore[attr-defined]


def count_rounds(pipe: Datapipe) -> int | None:
    """Return how many mini-batches the first of the ranks makes, which has the most; None if nobody can tell."""

    def first(stage: Datapipe) -> Datapipe:
        return stage.changed(rank=0, world_size=count_ranks(stage)) if isinstance(stage, Ranked) else stage

    try:
        return length(pipe.rewrite(first))
    except TypeError:
        return None


def check_reader(is_closed: bool) -> None:
    """Raise where nobody should take another mini-batch."""
    if is_closed:
        raise RuntimeError("the loader is closed; make another") from None
    # The program has ended, and doesn't wait for this thread, which ends by that without a word.
    if threading.current_thread().daemon and not threading.main_thread().is_alive():
        raise SystemExit from None


def with_progress(minibatches: Iterator[Any], progress: Progress, pipe: Datapipe) -> Iterator[Any]:
    """Yield mini-batches; the first rank's with a bar: the rate, how much the loop waits, the time left."""
    if any(source.rank_and_size[0] > 0 for source in find(pipe, Ranked)):  # type: ignore[attr-defined]
        yield from minibatches
        return
    automatic = import_optional("tqdm.auto", "progress=True", "pip install tqdm").tqdm
    # tqdm's monitor is a thread that would stay until the end of the program.
    bar_class: Any = type("EpochBar", (automatic,), {"monitor_interval": 0})
    bar_class.set_lock(ProgressBar.get_lock())
    waited, start = 0, perf_counter_ns()
    with bar_class(
        desc=f"epoch {progress.epoch}",
        initial=progress.index,
        total=count_rounds(pipe),
        unit="batch",
        dynamic_ncols=True,
        mininterval=0.5,
    ) as bar:
        for handover, minibatch in timed(minibatches):
            waited += handover.given - handover.asked
            bar.set_postfix_str(f"waits {100 * waited / (handover.given - start):.0f} %", refresh=False)
            bar.update()
            yield minibatch
