"""What happens to a pipeline, in order: the rules, and the plan that they make of it."""

from collections.abc import Callable
from dataclasses import dataclass

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.describe import describe_stage
from graphfeed.datapipes.transform import Transform
from graphfeed.loader.in_workers import InWorkers
from graphfeed.loader.prefetch import Prefetch
from graphfeed.loader.rules import (
    LoaderOptions,
    cut_at_main_stages,
    fetch_in_threads,
    prefetch_before_copy,
    prefetch_main_stages,
    shard_items,
)
from graphfeed.loader.sharder import Sharder

Rule = Callable[[Datapipe, LoaderOptions], Datapipe]

# Where features are fetched decides where the cut falls; what runs ahead of the copy is known after the cut.
RULES: tuple[Rule, ...] = (
    shard_items,
    fetch_in_threads,
    cut_at_main_stages,
    prefetch_before_copy,
    prefetch_main_stages,
)


@dataclass(frozen=True)
class Plan:
    """A pipeline as written, as it will run, and the rules that made the difference."""

    written: Datapipe
    running: Datapipe
    applied: tuple[Rule, ...]

    def explain(self, *, rewritten: bool = True) -> str:
        """Return the plan as text: where each stage runs, the last stage first, then the rules that fired."""
        lines = list_stages(self.running if rewritten else self.written, "main", 0)
        if not rewritten:
            return "\n".join(lines)
        if self.applied:
            lines.append("rules:")
            width = max(len(rule.__name__) for rule in self.applied)
            for rule in self.applied:
                lines.append(f"  {rule.__name__:{width}}  {(rule.__doc__ or '').splitlines()[0]}")
        else:
            lines.append("rules: none; every stage runs where the loader is iterated")
        return "\n".join(lines)


def make_plan(pipe: Datapipe, options: LoaderOptions) -> Plan:
    """Apply the rules to a copy of a pipeline; starts nothing, touches no device."""
    running, applied = pipe, []
    for rule in RULES:
        result = rule(running, options)
        if result is not running:
            applied.append(rule)
        running = result
    return Plan(pipe, running, tuple(applied))


def list_stages(stage: Datapipe, where: str, depth: int) -> list[str]:
    """Return a line for each stage: where it runs, and what it is, deeper the nearer to the source."""
    lines = [f"{where:<10}{'  ' * depth}{describe_stage(stage)}"]
    inside = where
    if isinstance(stage, Prefetch):
        inside = "prefetch"
    elif isinstance(stage, InWorkers):
        return lines + list_region(stage, where, depth + 1)
    for source in stage.inputs:
        lines += list_stages(source, inside, depth + 1)
    return lines


def list_region(cut: InWorkers, outside: str, depth: int) -> list[str]:
    """List the stages that workers run; a source that can't be sharded runs outside of them."""
    lines = []
    stage = cut.datapipe
    while isinstance(stage, Transform):
        lines.append(f"{'worker':<10}{'  ' * depth}{describe_stage(stage)}")
        stage, depth = stage.datapipe, depth + 1
    return lines + list_stages(stage, "worker" if isinstance(stage, Sharder) else outside, depth)
