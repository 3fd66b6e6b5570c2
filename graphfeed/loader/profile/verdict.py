"""The verdict of a profile: the bottleneck, its cause, and one change to try.

`RULES` are tried in order; the first match wins. The gain of a change is bounded by the next bottleneck (the bottleneck
law of queueing networks): the loop's own thread, the cores that other programs leave, or the workers.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from time import perf_counter

import numpy as np

from graphfeed.loader.profile.summary import StageTime, Summary

FEWEST = 20
"""Minimum number of mini-batches for a verdict."""
FEWEST_READ = 5
"""Minimum number for the verdict that a disk or a server is the limit: an epoch of ten has no more after the start."""
SHORTEST_SECONDS = 0.2
RARELY = 0.05
"""Share of the time up to which the loop counts as not waiting."""
BUSY = 0.85
"""Minimum share of the time for which busy workers work."""
RATHER_BUSY = 0.6
"""Minimum share above which more workers help if there is no other limit, because they hide transfers."""
SLOWEST_MEMORY = 1e9
"""Bytes per second below which memory can't be the limit, so its bandwidth is not measured."""
SLOWEST_DISK = 1e6
"""Bytes per second below which reading from disks causes no waiting."""
NEAR = 0.5
"""Bandwidth of random rows as a share of the bandwidth of sequential copies."""
WAITS = 0.3
"""A stage that uses the CPU for less than this share of its time is waiting."""
HANDING_OVER_MS = 0.3
"""Mini-batches that take less are computed faster than they are passed to a worker."""
A_THIRD = 1 / 3
"""Share of the time at which waiting for a core is worth mentioning."""
NEARLY_ALL = 0.8
"""A loader that uses at least this share of its cores waits for its own threads."""
COPIED_BYTES = 1 << 27
"""Larger than most CPU caches."""


@dataclass(frozen=True)
class Verdict:
    """The limit of the rate, as a keyword and in one or two sentences."""

    cause: str
    text: str
    gain: float = 1.0
    """Upper bound of the rate after the change, as a multiple of the measured rate."""


def judge(summary: Summary) -> Verdict:
    count, rules = summary.num_minibatches, RULES
    lasts, waits = summary.seconds >= SHORTEST_SECONDS, summary.waits > RARELY
    if not lasts or count < FEWEST:
        # A few mini-batches suffice if each of them waits for a disk or a server.
        rules = (disk_or_server_is_the_limit, answers_are_slow) if lasts and waits and count >= FEWEST_READ else ()
    verdict = next((verdict for rule in rules if (verdict := rule(summary)) is not None), None)
    if verdict is None and rules is not RULES:
        return Verdict(
            "too few",
            f"too few mini-batches to tell: it needs at least {FEWEST} mini-batches and {SHORTEST_SECONDS:g} s after "
            f"the start; it saw {count} in {summary.seconds:.2f} s",
        )
    if verdict is None:
        listed = sorted(summary.stages, key=lambda stage: -stage.ms)[:2]
        largest = " and ".join(f"{name(stage)} {stage.ms:.1f} ms" for stage in listed)
        verdict = Verdict("unclear", f"no single cause stands out; most time is spent in {largest or 'no stage'}")
    if verdict.cause == "step":
        return verdict
    texts = [f"your step waits {percent(summary.waits)} of the time", verdict.text, who_takes_cores(summary)]
    return replace(verdict, text="; ".join(filter(None, texts)))


def step_is_the_limit(summary: Summary) -> Verdict | None:
    """The loop hardly waits."""
    if summary.waits > RARELY:
        return None
    text = f"your step is the limit: it waits for the loader {percent(summary.waits)} of the time"
    workers = summary.setting.num_workers
    if workers and summary.worker_ms > 0:
        headroom = rate_of_workers(summary, workers) / summary.rate
        needed = ceil(1.2 * summary.worker_ms * summary.rate / 1000)
        text += f"; the loader could be {times(headroom)} as fast"
        if needed < workers:
            text += f", and num_workers={needed} would suffice"
    return Verdict("step", text)


def disk_or_server_is_the_limit(summary: Summary) -> Verdict | None:
    """Servers build the mini-batches, or most of the time is spent reading from a disk."""
    per_minibatch = summary.read_bytes_per_second / max(summary.rate, 1e-9)
    stage, gain = slowest(summary), most(summary)
    if summary.setting.worker == "server":
        queue, on_the_way = summary.server_queue_ms, summary.request_ms - summary.worker_ms - summary.server_queue_ms
        return Verdict(
            "server",
            f"a request takes {summary.request_ms:.1f} ms, {queue:.1f} of them in the server's queue "
            f"and {on_the_way:.1f} in transit, and {name(stage)} takes {percent(stage.share)} of the work: more "
            f"servers, or more requests at once (num_workers={2 * summary.setting.num_workers}), up to {times(gain)} "
            "the rate",
            gain,
        )
    if per_minibatch < max(0.1 * summary.num_bytes, 1e5) or stage.cpu > 0.8:
        return None
    return Verdict(
        "disk",
        f"{name(stage)} takes {percent(stage.share)} of a mini-batch and reads "
        f"{summary.read_bytes_per_second / 1e6:.0f} MB/s from disk, {per_minibatch / 1e6:.1f} MB per mini-batch: more "
        "memory for the rows (a cache), or more workers, whose reads overlap",
    )


def main_process_is_the_limit(summary: Summary) -> Verdict | None:
    """Stages of the main process, in the loop's thread or in prefetch threads, cause most of the loop's waiting."""
    setting = summary.setting
    if not setting.num_workers and summary.main_ms >= HANDING_OVER_MS:
        # The step needs a core as well.
        step_ms = max(summary.step_ms, 1e-3)
        workers = max(1, min(round(cores_left(summary)) - 1, ceil(1.2 * summary.main_ms / step_ms)))
        possible = min(1000 / step_ms, workers * 1000 / summary.main_ms, rate_of_cores(summary))
        gain = max(1.0, possible / summary.rate)
        return Verdict(
            "inline",
            f"everything runs in your loop's thread, most of it in {name(slowest(summary))}; "
            f"num_workers={workers} may give up to {times(gain)} the rate",
            gain,
        )
    in_loop = summary.main_ms * summary.rate / 1000 > 0.6 * summary.waits and setting.num_workers > 0
    ahead = summary.beside_ms * summary.rate / 1000 > BUSY and summary.busy < BUSY
    if not in_loop and not ahead:
        return None
    stage = slowest(summary, ("main",) if in_loop else ("prefetch", "thread"))
    if setting.worker == "thread" and summary.busy > BUSY and stage.cpu < WAITS:
        return None  # it waits for the interpreter's lock, or a core, that busy threads hold
    where = "your loop's own thread" if in_loop else "a thread of the main process"
    return Verdict(
        "main process",
        f"{name(stage)} runs in {where} and takes {stage.ms:.1f} ms of each mini-batch: a user-defined stage runs in "
        f"workers if it defines `__call__` rather than `__iter__`, up to {times(most(summary))} the rate",
        most(summary),
    )


def lock_is_held(summary: Summary) -> Verdict | None:
    """Threads wait for the interpreter's lock, which only one thread can hold."""
    if not lock_is_short(summary):
        return None
    used = summary.worker_cpu_ms * summary.rate / 1000
    stage = max(in_workers(summary), key=lambda stage: stage.ms * stage.cpu)
    gain = max(1.0, min(most(summary), summary.setting.num_workers, cores_left(summary) / used))
    return Verdict(
        "interpreter lock",
        f"{name(stage)} holds the interpreter's lock, so {summary.setting.num_workers} threads "
        f"together use {used:.1f} cores: try worker='process', up to {times(gain)} the rate",
        gain,
    )


def lock_is_short(summary: Summary) -> bool:
    """Return whether threads wait although together they use about one core, the most that the lock allows."""
    wanted = wanted_ms(summary) * summary.rate / 1000
    waiting = wanted_ms(summary) < 0.8 * summary.worker_ms
    several = summary.setting.worker == "thread" and summary.setting.num_workers > 1
    # More than one core, as the thread that acquires the lock may wait for a core as well.
    return several and waiting and 0.6 < wanted < 1.5


def memory_is_the_limit(summary: Summary) -> Verdict | None:
    """Workers copy rows about as fast as the memory allows, so that more workers would wait for it as well."""
    stage = slowest(summary)
    moved = summary.rate * sum(size for _, size in summary.rows.values())
    is_busy = summary.busy > BUSY and summary.setting.num_workers > 1 and stage.cpu > 0.8
    if not is_busy or stage.row.name != "FeatureFetcher" or moved < SLOWEST_MEMORY:
        return None
    copied = copy_rate(summary.setting.num_cores)
    if moved < NEAR * copied:
        return None
    return Verdict(
        "memory bandwidth",
        f"{name(stage)} reads {moved / 1e9:.1f} GB/s of rows, and all cores together copy "
        f"{copied / 1e9:.1f} GB/s here, so more workers don't help: narrower features (float16), or fewer rows "
        "(smaller fan-outs)",
    )


@cache
def copy_rate(cores: int) -> float:
    """Return the bytes per second that the given number of cores copy together, measured once in about 0.1 s."""
    sources, targets = (np.array_split(np.ones(COPIED_BYTES, np.uint8), cores) for _ in range(2))
    seconds = []
    with ThreadPoolExecutor(cores) as threads:
        for _ in range(4):
            begin = perf_counter()
            list(threads.map(np.copyto, targets, sources))
            seconds.append(perf_counter() - begin)
    return COPIED_BYTES / min(seconds)


def workers_are_the_limit(summary: Summary) -> Verdict | None:
    """Workers wait for something other than a core, or there are idle cores for more workers."""
    workers, cores = summary.setting.num_workers, max(1, round(cores_left(summary)))
    waiting = answers_are_slow(summary)
    if waiting is not None or summary.busy < RATHER_BUSY or workers >= cores:
        return waiting
    return more_workers(summary, busy_with(summary), min(2 * workers, cores))


def answers_are_slow(summary: Summary) -> Verdict | None:
    # Threads that hardly run may wait for the interpreter's lock, which any thread of this process may hold.
    may_be_locked = summary.setting.worker == "thread" and summary.cores_used > 0.6 * (1 - summary.core_wait)
    if summary.busy < RATHER_BUSY or use_cores(summary) or may_be_locked:
        return None
    what = "a disk" if summary.read_bytes_per_second > SLOWEST_DISK else "a server or similar"
    why = f"{busy_with(summary)}, most of it waiting for {what}"
    return more_workers(summary, why, 2 * summary.setting.num_workers)


def cores_are_taken(summary: Summary) -> Verdict | None:
    """Workers, or other programs, use all cores."""
    if summary.busy < RATHER_BUSY or not use_cores(summary):
        return None
    at_work = f"all {max(1, round(cores_left(summary)))} cores are busy"
    return Verdict(
        "cores",
        f"{'no core is idle' if who_takes_cores(summary) else at_work} ({busy_with(summary)}): make that stage cheaper "
        "(smaller fan-outs, fewer or narrower features), or use more cores",
    )


RULES: tuple[Callable[[Summary], Verdict | None], ...] = (
    step_is_the_limit,
    disk_or_server_is_the_limit,
    main_process_is_the_limit,
    lock_is_held,
    memory_is_the_limit,
    workers_are_the_limit,
    cores_are_taken,
)


def most(summary: Summary) -> float:
    # Rate of a loader for which the step never waits, as a multiple of the measured rate.
    return 1 / max(1 - summary.waits, 0.01)


def rate_of_workers(summary: Summary, num_workers: int) -> float:
    return min(1000 * num_workers / max(summary.worker_ms, 1e-3), rate_of_cores(summary))


def more_workers(summary: Summary, why: str, num_workers: int) -> Verdict:
    gain = max(1.0, min(most(summary), rate_of_workers(summary, num_workers) / summary.rate))
    return Verdict("workers", f"{why}: num_workers={num_workers} may give up to {times(gain)} the rate", gain)


def busy_with(summary: Summary) -> str:
    stage = slowest(summary)
    return f"workers are busy {percent(summary.busy)} of the time, and {name(stage)} takes {percent(stage.share)} of it"


def in_workers(summary: Summary) -> list[StageTime]:
    # All stages if none runs in workers.
    return [stage for stage in summary.stages if stage.row.where in ("worker", "server")] or list(summary.stages)


def slowest(summary: Summary, where: tuple[str, ...] = ()) -> StageTime:
    return max(
        (stage for stage in summary.stages if stage.row.where in where) if where else in_workers(summary),
        key=lambda stage: stage.ms,
    )


def name(stage: StageTime) -> str:
    return f"{stage.row.name} (stage {stage.row.position})"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def times(factor: float) -> str:
    return f"{factor:.1f} times"


def cores_are_short(summary: Summary) -> bool:
    # At least a third of both the time in which threads could run, and the total time.
    waiting = summary.cores_used * summary.core_wait / (1 - summary.core_wait)
    return min(summary.core_wait, waiting) >= A_THIRD


def cores_left(summary: Summary) -> float:
    setting = summary.setting
    allowed = min(setting.num_cores, setting.quota or setting.num_cores)
    if not cores_are_short(summary):
        return allowed
    return min(allowed, max(summary.cores_used, setting.num_cores * (1 - summary.core_wait)))


def rate_of_cores(summary: Summary) -> float:
    cpu_ms = sum(stage.ms * stage.cpu for stage in summary.stages)
    return 1000 * cores_left(summary) / max(cpu_ms, 1e-3)


def wanted_ms(summary: Summary) -> float:
    # Time for which workers run or wait for a core.
    return summary.worker_cpu_ms / (1 - summary.core_wait)


def use_cores(summary: Summary) -> bool:
    # Workers run, or could run if a core were free, for most of their time.
    return wanted_ms(summary) > 0.5 * summary.worker_ms


def who_takes_cores(summary: Summary) -> str:
    """Describe why threads wait for a core; an empty string if they don't, or only wait for each other."""
    setting, left = summary.setting, cores_left(summary)
    waited = f"runnable threads waited {100 * summary.core_wait:.0f} % of the time for a core"
    if not cores_are_short(summary):
        return ""
    if setting.quota and summary.cores_used > NEARLY_ALL * setting.quota:
        return f"a quota allows {setting.quota:g} cores: {waited}"
    if left > NEARLY_ALL * setting.num_cores:
        return ""
    return f"other programs use the cores: {waited}, and {left:.1f} of {setting.num_cores} are left"
