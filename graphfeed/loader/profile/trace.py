"""A profile in the trace format of Chrome, which Perfetto opens."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from graphfeed.loader.profile.epoch_record import EpochRecord

US = 1000
"""Nanoseconds in the unit of time stamps."""
MOST_MINIBATCHES = 10_000
"""More make files that viewers can't open."""


def trace_events(record: EpochRecord) -> Iterator[dict[str, Any]]:
    """Yield an epoch's events: a range for each call, wait and step, a counter for the window, names for the tracks."""
    handovers = record.handovers[-MOST_MINIBATCHES:]
    begin = handovers[0].asked if handovers else 0
    here, loop = record.recorder.process, record.loop_thread
    tracks = {(here, loop): "loop"}
    for span in tuple(record.spans):
        if span.end < begin:
            continue
        track = (span.process, span.thread)
        tracks.setdefault(track, f"thread {len(tracks)}" if span.process == here else "worker")
        name = f"wait at {span.name}" if span.side else span.name
        arguments = {"epoch": span.epoch, "mini-batch": span.minibatch} if span.minibatch >= 0 else {}
        yield {**complete(name, span.begin, span.end, *track), "args": arguments}
    for earlier, later in pairwise(handovers):
        yield complete("step", earlier.given, later.asked, here, loop)
    for window in record.windows:
        if window.time >= begin:
            counts = {"in flight": window.in_flight - window.ready, "ready": window.ready}
            yield {"name": "window", "ph": "C", "ts": window.time / US, "pid": here, "args": counts}
    for (process, thread), name in tracks.items():
        where = "main process" if process == here else f"worker process {process}"
        yield {"name": "process_name", "ph": "M", "pid": process, "tid": thread, "args": {"name": where}}
        yield {"name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def complete(name: str, begin: int, end: int, process: int, thread: int) -> dict[str, Any]:
    """Return a range."""
    return {"name": name, "ph": "X", "ts": begin / US, "dur": (end - begin) / US, "pid": process, "tid": thread}
