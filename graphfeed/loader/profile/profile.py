"""The result of `DataLoader.profile`: a table of at most 20 lines, a dict, or a trace."""

import html
import os
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphfeed.datapipes.pipeline import Observer
from graphfeed.loader.profile.epoch_record import Counters, EpochRecord, LoaderConfig
from graphfeed.loader.profile.recorder import Recorder
from graphfeed.loader.profile.summary import Summary, summarise
from graphfeed.loader.profile.trace import write_trace
from graphfeed.loader.profile.verdict import Verdict, judge, percent
from graphfeed.storage.memory import Cache

WIDTH = 110
COLUMNS = "{:8}  {:>8}  {:>8}  {:>6}  {:>6}  {}"


class Profile:
    """Time measurements of a loader's epochs. `print(profile)` shows a verdict and a table of the stages.

    Measuring costs about 3 microseconds for each stage of a mini-batch. Times of stages are medians, excluding nested
    stages. The first mini-batches, with too few in flight, are left out. Caches are those of this process.

    Example:
        >>> import graphfeed as gf
        >>> loader = gf.DataLoader(gf.ItemSampler(gf.ItemSet(8, names="seeds"), batch_size=2), num_workers=0)
        >>> with loader.profile() as profile:
        ...     minibatches = list(loader)
        >>> print(profile.verdict.cause)
        too few
    """

    def __init__(self, *, record_functions: bool = False) -> None:
        self.records: list[EpochRecord] = []
        self.record_functions = record_functions

    def open_epoch(
        self, setting: LoaderConfig, caches: Iterable[tuple[str, Cache]], executor: Any, observer: Observer | None
    ) -> EpochRecord:
        """Add and return the record of another epoch. `DataLoader` calls this."""
        recorder = Recorder(observer, record_functions=self.record_functions)
        self.records.append(EpochRecord(setting, recorder, Counters.now(caches, executor)))
        return self.records[-1]

    @property
    def summary(self) -> Summary | None:
        """Medians of the measurements so far with the loader's latest setting; None if there is no mini-batch yet."""
        records = [record for record in self.records if record.handovers]
        return summarise([record for record in records if record.setting == records[-1].setting]) if records else None

    @property
    def verdict(self) -> Verdict:
        """The bottleneck, its cause, and a change to try."""
        summary = self.summary
        return Verdict("too few", "no mini-batch was yielded") if summary is None else judge(summary)

    def __str__(self) -> str:
        summary = self.summary
        return self.verdict.text if summary is None else write_table(summary, judge(summary))

    def __repr__(self) -> str:
        count = sum(len(record.handovers) for record in self.records)
        return f"Profile({count} mini-batches, {self.verdict.cause})"

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict and all figures of the table as plain values that JSON can represent."""
        summary = self.summary
        if summary is None:
            return {"verdict": asdict(self.verdict)}
        return {"verdict": asdict(judge(summary)), **asdict(summary)}

    def to_chrome_trace(self, path: str | os.PathLike[str], *, into: str | os.PathLike[str] | None = None) -> None:
        """Write the latest 10,000 mini-batches as a trace that https://ui.perfetto.dev and chrome://tracing open.

        There is a track for each thread and process, with the stages, the waits and the steps of the loop, arrows from
        the stages of a mini-batch to its step, and a counter of the mini-batches in flight and ready.

        Args:
            path: The file to write, compressed if its name ends with ".gz". An existing file is replaced atomically.
            into: A trace of the same period written by `torch.profiler`, whose events are included.
        """
        self._measured()
        write_trace(Path(path), self.records, None if into is None else Path(into))

    def _measured(self) -> Summary:
        summary = self.summary
        if summary is None:
            raise ValueError("nothing was measured: iterate the loader within `with loader.profile() as profile:`")
        return summary

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def write_table(summary: Summary, verdict: Verdict) -> str:
    text = verdict.text[0].upper() + verdict.text[1:] + "."
    above, below = textwrap.wrap(text, WIDTH, max_lines=6), [*loop_lines(summary), *other_lines(summary)]
    return "\n".join([*above, "", *stage_lines(summary, 20 - len(above) - len(below) - 1), *below])


def stage_lines(summary: Summary, most: int) -> list[str]:
    """Return a heading, and a line for each stage, the source first."""
    shown = {id(stage) for stage in summary.stages}
    # If there are too many stages, those with the least time share a line.
    if len(shown) > most - 1:
        shown = {id(stage) for stage in sorted(summary.stages, key=lambda stage: -stage.ms)[: most - 2]}
    lines = [COLUMNS.format("where", "ms", "p95", "share", "CPU", "stage")]
    lines += [
        COLUMNS.format(
            stage.row.where,
            f"{stage.ms:.2f}",
            f"{stage.p95_ms:.2f}",
            percent(stage.share),
            percent(stage.cpu),
            stage.row.name,
        )
        for stage in summary.stages
        if id(stage) in shown
    ]
    rest = [stage for stage in summary.stages if id(stage) not in shown]
    if rest:
        ms = f"{sum(stage.ms for stage in rest):.2f}"
        lines.append(COLUMNS.format("", ms, "", "", "", f"{len(rest)} others"))
    return lines


def loop_lines(summary: Summary) -> list[str]:
    """Return the line of the loop, and the lines of the workers if there are any."""
    lines = [
        f"{'loop':8}  {summary.step_ms:8.2f}  {'':24}  your step; it waits {percent(summary.waits)} of the time, "
        f"{summary.first_seconds:.2f} s for the first mini-batch"
    ]
    setting = summary.setting
    if setting.num_workers:
        lines.append(
            f"workers: {setting.num_workers} ({setting.worker}), busy {percent(summary.busy)}; {summary.in_flight:.1f} "
            f"of {setting.most_in_flight} in flight, {summary.ready:.1f} ready"
        )
        lines.append(
            f"transfer: {summary.queue_ms:.2f} ms until a worker begins, {summary.transfer_ms:.2f} ms back; workers "
            f"replaced: {summary.num_replaced}"
        )
    return lines


def other_lines(summary: Summary) -> list[str]:
    """Return the lines of the rate, the features, the caches and the disks."""
    lines = [
        f"{summary.num_minibatches} mini-batches in {summary.seconds:.2f} s: {summary.rate:.1f} per second, "
        f"{summary.num_bytes / 1e6:.2f} MB each, {summary.rate * summary.num_bytes / 1e6:.0f} MB/s"
    ]
    if summary.rows:
        largest = sorted(summary.rows.items(), key=lambda item: -item[1][1])
        named = [f"{name} {rows:,.0f} rows, {size / 1e6:.2f} MB" for name, (rows, size) in largest[:3]]
        lines.append(textwrap.shorten(f"features: {'; '.join(named)}", WIDTH))
    if summary.caches:
        shares = [
            f"{names} {percent(hits / (hits + misses))} of {hits + misses:,} rows"
            for names, (hits, misses) in summary.caches.items()
            if hits + misses
        ]
        if shares:
            lines.append(textwrap.shorten(f"hits of caches: {'; '.join(shares)}", WIDTH))
    if summary.read_bytes_per_second > 1e6:
        lines.append(f"read from disks: {summary.read_bytes_per_second / 1e6:.0f} MB/s")
    return lines
