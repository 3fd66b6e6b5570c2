"""What happens to a pipeline, in order: the rules, and the plan they make."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graphfeed.datapipes import Datapipe
from graphfeed.datapipes.pipeline import assign_streams
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
    overlap_feature_fetch,
    overlap_graph_fetch,
    pin_before_copy,
    prefetch_on_stream,
    run_main_stages_ahead,
)
from graphfeed.loader.window_rules import fetch_in_windows, sample_together
from graphfeed.ops.arguments import brief

Rule = Callable[[Datapipe, LoaderOptions], Datapipe]

# The order matters. What ranks do together is settled before anything is placed. Where features are fetched decides
# which copies workers reach, and both decide where the cut falls; the cut decides what can run ahead of the copy. A
# copy needs no stream of its own if fetching behind it has one. Pinned memory helps only a copy on a stream.
RULES: tuple[Rule, ...] = (
    cooperate,
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
    run_main_stages_ahead,
)


@dataclass(frozen=True)
class Plan:
    """A pipeline as it was written and as it runs, and the rules that changed it."""

    written: Datapipe
    running: Datapipe
    applied: tuple[Rule, ...]

    def explain(self, *, rewritten: bool = True, summary: Summary | None = None) -> str:
        """Return the plan as text: a table of the stages, the last one first, then the rules that changed something.

        The table shows where each stage runs, the estimated size of its output, and the number by which errors name it;
        for a GPU also the device and the stream; with the summary of a profile, the time of each stage. Caches follow,
        each with its size, hits and misses, and graphs in mapped files, with how they are read. This makes one
        mini-batch of items; nothing is sampled, and no device is touched. Sizes are right to a factor of two or three:
        on WordNet, where few nodes have most of the edges, 0.7 to 2.4 times the real ones. `rewritten=False` shows the
        pipeline as it was written instead.
        """
        if not rewritten:
            return "\n".join(describe_written(self.written))
        return "\n".join(
            [*describe_plan(self.running, summary), *describe_storage(self.running), *describe_rules(self.applied)]
        )

    def __str__(self) -> str:
        return describe_in_line(self.running)


def make_plan(pipe: Datapipe[Any], options: LoaderOptions, rules: Sequence[Rule] = RULES) -> Plan:
    """Apply the rules to a copy of a pipeline; starts nothing, touches no device."""
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
