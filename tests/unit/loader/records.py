"""Records of epochs as if they had been measured, with times that are easy to check."""

from collections.abc import Sequence

from graphfeed.loader.profile import EpochRecord, LoaderConfig, Recorder, Span, StageRow
from graphfeed.loader.profile.epoch_record import Counters, LoopWait, Pending, TaskTiming

MS = 1_000_000
STAGES = (StageRow(1, "ItemSampler", "worker"), StageRow(2, "NeighborSampler", "worker"), StageRow(3, "CopyTo", "main"))


def make_record(
    count: int, *, step_ms: int = 1, wait_ms: int = 4, work_ms: Sequence[int] = (1, 5), workers: int = 2
) -> EpochRecord:
    """Return an epoch in which the loop waits and steps by turns, and each stage of the workers takes its time."""
    setting = LoaderConfig(STAGES, workers, "process", 2 * workers, 8)
    record = EpochRecord(setting, Recorder(), Counters({}, 0, 0))
    now = 0
    for index in range(count):
        begin = now + MS // 2
        record.trips.append(TaskTiming(0, index, begin - MS // 2, begin + (sum(work_ms) + 2) * MS))
        for row, ms in zip(STAGES, work_ms, strict=False):
            end = begin + ms * MS
            half = ms * MS // 2
            record.recorder.spans.append(Span(row.position, row.name, "", 0, index, begin, end, ms * MS, half, 99, 7))
            begin = end
        record.pending.append(Pending(now, 3, 1))
        record.handovers.append(LoopWait(now, now + wait_ms * MS, 0, index))
        now += (wait_ms + step_ms) * MS
    record.ended = now
    return record
