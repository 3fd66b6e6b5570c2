"""Progress of an epoch, its restoration from a state, and the progress bar."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Protocol, runtime_checkable

from graphfeed.datapipes import Datapipe, DistributedItemSampler, IterableSource, NodeRecord, is_node, length
from graphfeed.datapipes.pipeline import find, traverse
from graphfeed.loader.fingerprint import Fingerprint, find_difference
from graphfeed.loader.profile import timed
from graphfeed.ops.arguments import brief, check_count
from graphfeed.ops.process import ProgressBar, import_optional


@runtime_checkable
class OrderedSource(Protocol):
    """A source whose order of an epoch comes from outside, may differ if it is read again, and may leave items out."""

    def digest_order(self) -> str:
        """Return a digest of the order of the epoch that the source was keyed for."""

    def gives_a_share(self) -> bool:
        """Return whether the source may yield only some of the items, so that ranks may divide them."""


@dataclass
class Progress:
    """Position in an epoch."""

    epoch: int
    index: int
    """Number of mini-batches yielded."""
    done: bool = False
    order: str | None = None
    """Digest of the order of the epoch, if it comes from outside."""
    thread: int | None = None
    """Id of the thread that received the latest mini-batch."""

    sources: dict[str, Any] | None = None
    """States of the pipeline's nodes at the start of the epoch, in the form of a loader's state."""
    restores: bool = False
    """Whether the nodes have to be set to these states, because a loader's state was loaded."""
    records: list[NodeRecord] = field(default_factory=list)

    def follow(self, latest: "Progress") -> None:
        """Copy the states of the nodes from the previous epoch."""
        self.sources = latest.node_states(is_over=True)
        self.restores = latest.restores and not latest.records

    def advance(self) -> None:
        """Count a yielded mini-batch."""
        self.index += 1
        for record in self.records:
            record.drop(self.index - 1)

    def follow_nodes(self, pipe: Datapipe, replays: bool) -> Datapipe:
        """Return the pipeline with nodes that continue from the states that there are, and whose states are kept."""
        sources: dict[str, Any] = (self.restores and self.sources) or {"states": [], "over": False}
        given = iter(sources["states"])

        def follow(stage: Datapipe) -> Datapipe:
            if not isinstance(stage, IterableSource) or not is_node(stage.iterable):
                return stage
            self.records.append(NodeRecord(next(given, None), sources["over"], replays))
            return stage.changed(record=self.records[-1])

        return pipe.rewrite(follow)

    def node_states(self, is_over: bool) -> dict[str, Any] | None:
        """Return the states of the nodes at this position, or None if there are none."""
        states = [record.state_at(self.index) for record in self.records]
        if not states or any(state is None for state in states):
            return self.sources and {**self.sources, "over": is_over or self.sources["over"]}
        return {"states": states, "over": is_over}

    def note_order(self, pipe: Datapipe) -> None:
        """Record a digest of the epoch's order; raise a ValueError if it differs from that of the state."""
        digests = [source.digest_order() for source in find(pipe, OrderedSource)]  # type: ignore[attr-defined]
        order = " ".join(digests) or None
        if self.index > 0 and self.order is not None and order != self.order:
            raise ValueError(
                f"the sampler's order of epoch {self.epoch} differs from the one in state_dict, so seeds would be "
                "lost and repeated; restore its generator to the state before that epoch, or let the sampler draw "
                "from torch's global generator, or remove 'order' from the state to continue anyway"
            )
        self.order = order


def check_state(state_dict: Mapping[str, Any], fingerprint: Fingerprint, given_seed: int | None, pipe: Datapipe) -> int:
    """Return the index at which to continue; raise unless the state fits. See `DataLoader.load_state_dict`."""
    position = read_position(state_dict)
    check_sources(state_dict.get("sources"), pipe)
    difference = find_difference(state_dict.get("fingerprint", fingerprint), fingerprint)
    if difference is not None:
        raise ValueError(
            f"state_dict comes from another pipeline: {difference}; build the same pipeline, or remove "
            "'fingerprint' from the state to continue anyway"
        )
    if given_seed is not None and position["seed"] != given_seed:
        raise ValueError(
            f"state_dict is of seed {position['seed']}, but this loader was given seed {given_seed}; "
            "omit the loader's seed, or pass the same one"
        )
    index, total = index_of_rank(position, count_ranks(pipe) or 1), count_rounds(pipe)
    if total is not None and index > max(total, 1):
        raise ValueError(
            f"index of state_dict is {index}, but an epoch has {total} mini-batches; the state comes from another "
            "pipeline"
        )
    return index


def read_position(state_dict: Mapping[str, Any]) -> dict[str, int]:
    """Return the seed, the epoch, the index and possibly the number of ranks of a state, or raise if one is invalid."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"state_dict must be a dict, as state_dict() returns it, but is {brief(state_dict)}")
    position = {name: value for name, value in state_dict.items() if name not in ("fingerprint", "order", "sources")}
    has_names = set(position) - {"ranks"} == {"seed", "epoch", "index"}
    if not has_names or not all(type(value) is int for value in position.values()):
        raise ValueError(f"state_dict must contain the integers seed, epoch and index, but is {brief(position)}")
    for name, least in (("epoch", 0), ("index", 0), ("ranks", 1)):
        check_count(f"{name} of state_dict", position.get(name, least), least)
    return position


def index_of_rank(position: Mapping[str, int], ranks: int) -> int:
    """Return the index at which each of some ranks continues; raise if they can't share the rest of the epoch."""
    # A state without a number of ranks has the number of this pipeline.
    former = position.get("ranks", ranks)
    made = position["index"] * former
    if made % ranks:
        raise ValueError(
            f"state_dict is of {former} ranks, whose {made} mini-batches of the epoch are not a multiple of "
            f"the {ranks} ranks here, so that some would be lost or repeated; continue with the same number of ranks, "
            f"with another divisor of {made}, or from the end of an epoch"
        )
    return made // ranks


def check_sources(sources: Any, pipe: Datapipe) -> None:
    """Raise a ValueError unless a state has one state for each node of the pipeline, or none at all."""
    if sources is None:
        return
    nodes = sum(is_node(stage.iterable) for stage in traverse(pipe) if isinstance(stage, IterableSource))
    states = sources.get("states") if isinstance(sources, Mapping) else None
    if not isinstance(states, (list, tuple)) or len(states) != nodes or not isinstance(sources.get("over"), bool):
        raise ValueError(
            f"sources of state_dict must have the states of the pipeline's {nodes} nodes, and whether their epoch is "
            f"over, but is {brief(sources)}; remove 'sources' from the state to read the nodes from the start"
        )


def count_ranks(pipe: Datapipe) -> int:
    """Return the number of ranks that share the mini-batches of a pipeline; 0 if its source has no ranks."""
    return max((source.rank_and_size[1] for source in find(pipe, DistributedItemSampler)), default=0)  # type: ignore[attr-defined]


def count_rounds(pipe: Datapipe) -> int | None:
    """Return the number of mini-batches of the first rank, which has the most; None if it is unknown."""

    def first(stage: Datapipe) -> Datapipe:
        is_ranked = isinstance(stage, DistributedItemSampler)
        return stage.changed(rank=0, world_size=count_ranks(stage)) if is_ranked else stage

    try:
        return length(pipe.rewrite(first))
    except TypeError:
        return None


def check_reader(is_closed: bool) -> None:
    """Raise if no more mini-batches may be read, because the loader is closed or the program ends."""
    if is_closed:
        raise RuntimeError("the loader is closed; create another one") from None
    # The program has ended without waiting for this thread. SystemExit ends the thread silently.
    if threading.current_thread().daemon and not threading.main_thread().is_alive():
        raise SystemExit from None


def with_progress(minibatches: Iterator[Any], progress: Progress, pipe: Datapipe) -> Iterator[Any]:
    """Yield mini-batches; on the first rank, show a bar with the rate, the share of waiting, and the time left."""
    if any(source.rank_and_size[0] > 0 for source in find(pipe, DistributedItemSampler)):  # type: ignore[attr-defined]
        yield from minibatches
        return
    automatic = import_optional("tqdm.auto", "progress=True", "pip install tqdm").tqdm
    # tqdm's monitor thread would run until the end of the program.
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
