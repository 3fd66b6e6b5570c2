"""The rules in the order in which they are applied, and the plan that results."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from graphfeed.datapipes import Datapipe, Source
from graphfeed.datapipes.pipeline import assign_streams, find, traverse
from graphfeed.loader.explain import describe_in_line, describe_plan, describe_rules, describe_storage, describe_written
from graphfeed.loader.placement_rules import (
    cut_at_main_stages,
    fetch_beside_processes,
    fetch_in_workers,
    make_on_servers,
    pass_idle_copies,
    shard_items,
)
from graphfeed.loader.profile import Summary
from graphfeed.loader.rules import (
    LoaderOptions,
    check_workers,
    cooperate,
    copy_on_stream,
    decode_last,
    fetch_before_steps,
    fetch_trained_last,
    issue_ahead,
    overlap_feature_fetch,
    overlap_graph_fetch,
    pin_before_copy,
    prefetch_on_stream,
    run_main_stages_ahead,
    write_matrices,
)
from graphfeed.loader.window_rules import fetch_in_windows, sample_together
from graphfeed.ops.arguments import brief
from graphfeed.storage.features import RowMemory

Rule = Callable[[Datapipe, LoaderOptions], Datapipe]

# The order matters. Cooperation of ranks, and what splits or joins stages, come before any placement.
# The place where features are fetched determines which copies run in workers, and both determine the cut. The cut
# determines which stages can run ahead of the copy. A copy needs no stream if fetching after it has one. Pinned memory
# helps only a copy on a stream. The fetch of rows that are trained follows the caller's steps, so nothing contains it.
RULES: tuple[Rule, ...] = (
    cooperate,
    fetch_trained_last,
    write_matrices,
    decode_last,
    shard_items,
    fetch_in_workers,
    pass_idle_copies,
    cut_at_main_stages,
    make_on_servers,
    sample_together,
    fetch_beside_processes,
    fetch_in_windows,
    overlap_graph_fetch,
    overlap_feature_fetch,
    prefetch_on_stream,
    copy_on_stream,
    pin_before_copy,
    issue_ahead,
    run_main_stages_ahead,
    fetch_before_steps,
)


@dataclass(frozen=True)
class Plan:
    """A pipeline as written and as it runs, and the rules that changed it."""

    written: Datapipe
    running: Datapipe
    applied: tuple[Rule, ...]

    found: dict[type, list[Datapipe]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Stages that `find` returned, by class."""

    def find(self, kind: type) -> list[Datapipe]:
        """Return the running stages that are instances of a class or a protocol, which are searched only once."""
        if kind not in self.found:
            self.found[kind] = find(self.running, kind)
        return self.found[kind]

    @cached_property
    def by_index(self) -> bool:
        """Whether an epoch can begin at any index."""
        return all(stage.traits.one_to_one or isinstance(stage, Source) for stage in traverse(self.running))

    def explain(
        self, *, rewritten: bool = True, summary: Summary | None = None, memories: Iterable[RowMemory] = ()
    ) -> str:
        """Return a printable table of the stages, the last one first, then the rules that changed something.

        The table shows where each stage runs, the estimated size of its output, and its number in error messages. It
        also shows the device and stream if there is a GPU, and the time of each stage if a profile's summary is given.
        Below it are the caches with sizes, hits and misses, and the memory-mapped graphs and how they are read. The
        estimate builds one mini-batch of items; nothing is sampled, and no device is touched. Sizes are correct to a
        factor of two or three: on WordNet, where few nodes have most of the edges, they are 0.7 to 2.4 times the real
        sizes. `rewritten=False` shows the pipeline as written instead.
        """
        if not rewritten:
            return "\n".join(describe_written(self.written))
        return "\n".join(
            [
                *describe_plan(self.running, summary),
                *describe_storage(self.running, memories),
                *describe_rules(self.applied),
            ]
        )

    def __str__(self) -> str:
        return describe_in_line(self.running)


def make_plan(pipe: Datapipe[Any], options: LoaderOptions, rules: Sequence[Rule] = RULES) -> Plan:
    """Apply the rules to a copy of a pipeline, without starting anything or touching a device."""
    check_workers(pipe, options)
    given: object = rules
    if not isinstance(given, Sequence) or not all(map(callable, given)):
        raise TypeError(f"rules must be a sequence of functions of a pipeline and options, but is {brief(rules)}")
    running, applied = assign_streams(pipe), []
    for rule in rules:
        result = rule(running, options)
        if result is not running:
            applied.append(rule)
        running = result
    return Plan(pipe, running, tuple(applied))
