"""What `DataLoader.profile` gives: a table, a dict, a trace, a plot."""

import os
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from graphfeed.datapipes import Datapipe
from graphfeed.datapipes.pipeline import Observer
from graphfeed.loader.profile.epoch_record import Counters, EpochRecord, Setting
from graphfeed.loader.profile.recorder import Recorder
from graphfeed.loader.profile.summary import Summary, summarise
from graphfeed.loader.profile.table import write_table
from graphfeed.loader.profile.trace import write_trace
from graphfeed.loader.profile.verdict import Verdict, judge
from graphfeed.ops.arguments import check_count


class Profile:
    """Where the time of a loader's epochs goes. `print(profile)` shows a verdict and a table of the stages.

    Measuring costs about 3 microseconds for each stage of a mini-batch. Times of stages are medians without what stages
    within them take; the first mini-batches, for which the window was not full, are left out. Caches are those of this
    process.

    Example:
        >>> import graphfeed as gf
        >>> pipe = gf.ItemSampler(gf.ItemSet(8, names="seeds"), batch_size=2).transform()
        >>> loader = gf.DataLoader(pipe, num_workers=0)
        >>> with loader.profile() as profile:
        ...     for minibatch in loader:
        ...         pass
        >>> print(profile.verdict.cause)
        too few
    """

    def __init__(self, *, record_functions: bool = False) -> None:
        self.records: list[EpochRecord] = []
        self.record_functions = record_functions

    def begin(self, setting: Setting, pipe: Datapipe, executor: Any, observer: Observer | None) -> EpochRecord:
        """Return a record for another epoch; `DataLoader` calls this."""
        devices = {row[:2]: row.device for row in setting.stages if row.device}
        recorder = Recorder(observer, record_functions=self.record_functions, devices=devices)
        self.records.append(EpochRecord(setting, recorder, Counters.now(pipe, executor)))
        return self.records[-1]

    @property
    def summary(self) -> Summary | None:
        """The medians of what was measured so far, in the latest setting of the loader; None if no epoch began yet."""
        records = [record for record in self.records if record.handovers]
        return summarise([record for record in records if record.setting == records[-1].setting]) if records else None

    @property
    def verdict(self) -> Verdict:
        """Who waits for whom, why, and what to try."""
        summary = self.summary
        return Verdict("too few", "no mini-batch was taken") if summary is None else judge(summary)

    def __str__(self) -> str:
        summary = self.summary
        return self.verdict.text if summary is None else write_table(summary, judge(summary))

    def __repr__(self) -> str:
        count = sum(len(record.handovers) for record in self.records)
        return f"Profile({count} mini-batches, {self.verdict.cause})"

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict and all figures of the table in plain values that JSON can hold."""
        summary = self.summary
        if summary is None:
            return {"verdict": asdict(self.verdict)}
        return {"verdict": asdict(judge(summary)), **asdict(summary)}

    def to_chrome_trace(self, path: str | os.PathLike[str], *, into: str | os.PathLike[str] | None = None) -> None:
        """Write the latest 10,000 mini-batches as a trace that https://ui.perfetto.dev and chrome://tracing open.

        There is a track for each thread and process, with the stages, the waits and the steps of the loop, one for each
        CUDA stream, arrows from the stages of a mini-batch to its step, and a counter of the mini-batches in flight and
        ready. A path that ends with ".gz" is compressed.

        Args:
            path: The file to write; an old one is replaced as a whole.
            into: A trace of the same time that `torch.profiler` wrote, whose events are written along.

        Raises:
            ValueError: Nothing was measured, or `into` is no trace.
        """
        self._measured()
        write_trace(Path(path), self.records, None if into is None else Path(into))

    def plot(self, num_minibatches: int = 12) -> Any:
        """Return a matplotlib figure: a timeline of some mini-batches, and a bar for each stage.

        Args:
            num_minibatches: How many mini-batches the timeline shows, from the middle of the latest epoch.

        Raises:
            ImportError: matplotlib is not installed.
            ValueError: Nothing was measured, or `num_minibatches` is below 1.
        """
        check_count("num_minibatches", num_minibatches, 1)
        summary = self._measured()
        return import_module("graphfeed.loader.profile.plot").draw(self.records, summary, num_minibatches)

    def _measured(self) -> Summary:
        summary = self.summary
        if summary is None:
            raise ValueError("nothing was measured: iterate the loader within `with loader.profile() as profile:`")
        return summary

    def _repr_html_(self) -> str:
        return str(import_module("graphfeed.loader.profile.plot").to_html(self))
