"""What this machine and a pipeline allow."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from graphfeed.datapipes import Datapipe, Shardable, Source
from graphfeed.datapipes.pipeline import find, traverse
from graphfeed.loader.executors.cores import available_cores, cpu_quotas
from graphfeed.loader.executors.main_module import GUARD_ADVICE, is_guarded
from graphfeed.loader.executors.sending import can_be_sent
from graphfeed.loader.plan import Plan, make_plan
from graphfeed.loader.rules import Cooperates, LoaderOptions, sampled_on_device
from graphfeed.loader.stages.in_windows import InWindows
from graphfeed.loader.stages.in_workers import InWorkers
from graphfeed.loader.tune.choice import Limits
from graphfeed.storage.memory import find_places, ranks_of_machine

WORKER_BYTES = 256e6
"""What a worker process is taken for until one was measured: 229 MB with torch and the kernels of a pipeline."""
SMALL_BYTES = 1 << 13
"""Tensors up to this size are sent by value."""


def why_fixed(pipe: Datapipe[Any]) -> str:
    """Return why workers can't change in the middle of an epoch, or there is nothing to choose; empty if they can."""
    if sampled_on_device(pipe) is not None:
        return "mini-batches are sampled on a GPU"
    plan = make_plan(pipe, LoaderOptions(num_workers=1, window=0))
    sources, cuts = find(pipe, Source), find(plan.running, InWorkers)
    if any(stage.cooperative for stage in find(pipe, Cooperates)):  # type: ignore[attr-defined]
        return "ranks make joint mini-batches, so all of them need the same workers"
    if not sources or not all(isinstance(source, Shardable) for source in sources):
        return "the source has an order of its own, so the pipeline can't go on from an index"
    if not all(stage.one_to_one or isinstance(stage, Source) for stage in traverse(pipe)):
        return "a stage does not map one mini-batch to one, so the pipeline can't go on from an index"
    if len(cuts) > 1:
        return "workers run several branches of the pipeline"
    return "" if cuts else "no stage runs in workers"


def find_limits(plan: Plan, options: LoaderOptions) -> Limits:
    """Return what bounds the choice before anything was measured."""
    pipe = plan.written
    rows = sum(stage.max_size_in_bytes for stage in find(plan.running, InWindows))  # type: ignore[attr-defined]
    cores = min([available_cores(), *map(ceil, cpu_quotas())])
    try:
        cuts = find(make_plan(pipe, LoaderOptions(num_workers=1, in_threads=False)).running, InWorkers)
    except ValueError as error:  # a stage can't run where processes would need it to
        cuts, reason = [], str(error)
    else:
        reason = why_no_processes(cuts)
    return Limits(
        max(1, cores // ranks_of_machine()),
        options.memory.for_workers(rows),
        worker_bytes=WORKER_BYTES,
        copied_bytes=0.0 if reason else bytes_to_copy(cuts),
        no_processes=reason,
    )


def why_no_processes(cuts: Sequence[Datapipe]) -> str:
    if not is_guarded():
        return GUARD_ADVICE
    for stage in sent_by(cuts):
        if not can_be_sent(stage):
            return f"{type(stage).__name__}, stage {stage.position}, can't be sent to them"
    return "" if cuts else "no stage would run in them"


def sent_by(cuts: Sequence[Datapipe]) -> list[Datapipe]:
    return [stage for cut in cuts for source in cut.inputs for stage in traverse(source) if not stage.inserted]


def bytes_to_copy(cuts: Sequence[Datapipe]) -> float:
    seen: dict[int, Any] = {}
    tensors = {tensor.data_ptr(): tensor for stage in sent_by(cuts) for tensor in tensors_of(stage, seen)}
    large = [tensor for tensor in tensors.values() if tensor.is_cpu and tensor.nbytes > SMALL_BYTES]
    # Those that don't lie where other processes can map them.
    return float(sum(one.nbytes for one, place in zip(large, find_places(large), strict=True) if place is None))


def tensors_of(value: Any, seen: dict[int, Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors that an object refers to through attributes and containers, each object once."""
    if id(value) in seen or isinstance(value, (type, ModuleType)):
        return
    seen[id(value)] = value  # kept, so that no other object gets its id
    if isinstance(value, torch.Tensor):
        yield value
        return
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple, set)) else ()
    for part in (*parts, *getattr(value, "__dict__", {}).values()):
        yield from tensors_of(part, seen)


def memory_of_worker(pid: int) -> tuple[float, float]:
    """Return the bytes that a worker process has for itself, and those that it shares with the fork server."""
    lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: 1024.0 * int(size.split()[0]) for name, size in (line.split(":") for line in lines)}
    alone = sizes["Private_Clean"] + sizes["Private_Dirty"]
    return alone, max(0.0, sizes["Anonymous"] - alone)
