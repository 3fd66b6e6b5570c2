"""A profile as a picture, by matplotlib."""

import base64
import html
import io
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from graphfeed.loader.profile.epoch_record import EpochRecord
from graphfeed.loader.profile.profile import Profile
from graphfeed.loader.profile.summary import Summary
from graphfeed.ops.process import import_optional

WAIT_COLOUR = "0.9"


def draw(records: Sequence[EpochRecord], summary: Summary, num_minibatches: int) -> Any:
    """Return a figure with a timeline, one line for each thread, and a bar for each stage."""
    figures = import_optional("matplotlib.figure", "a plot of a profile", "pip install matplotlib")
    figure = figures.Figure(figsize=(9, 5), layout="constrained")
    timeline, bars = figure.subplots(2, 1, height_ratios=(3, 2))
    colours = {stage.row.name: f"C{number % 10}" for number, stage in enumerate(summary.stages)}
    record = [record for record in records if record.handovers][-1]
    middle = max(0, (len(record.handovers) - num_minibatches) // 2)
    shown = record.handovers[middle : middle + num_minibatches]
    begin, end = shown[0].asked, shown[-1].given
    tracks: dict[tuple[int, int], int] = {(record.recorder.process, record.loop_thread): 0}
    for span in tuple(record.spans):
        if begin <= span.end and span.begin <= end:
            track = tracks.setdefault((span.process, span.thread), len(tracks))
            place = [((span.begin - begin) / 1e6, (span.end - span.begin) / 1e6)]
            timeline.broken_barh(place, (track - 0.4, 0.8), color=WAIT_COLOUR if span.side else colours.get(span.name))
    steps = [((a.given - begin) / 1e6, (b.asked - a.given) / 1e6) for a, b in pairwise(shown)]
    timeline.broken_barh(steps, (-0.4, 0.8), color="black")
    timeline.set_yticks(range(len(tracks)), ["loop", *(f"worker {number}" for number in range(1, len(tracks)))])
    timeline.set_xlim(0, (end - begin) / 1e6)
    timeline.set_xlabel("ms (black: your step; grey: waiting)")
    timeline.invert_yaxis()
    names = [f"{stage.row.name} ({stage.row.where})" for stage in summary.stages] + ["your step"]
    bars.barh(
        names,
        [stage.ms for stage in summary.stages] + [summary.step_ms],
        color=[colours[stage.row.name] for stage in summary.stages] + ["black"],
    )
    bars.set_xlabel("ms per mini-batch")
    bars.invert_yaxis()
    return figure


def to_html(profile: Profile) -> str:
    """Return the table of a profile for a notebook, and the picture if there is matplotlib and something to show."""
    text = f"<pre>{html.escape(str(profile))}</pre>"
    try:
        figure = profile.plot()
    except (ImportError, ValueError):
        return text
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=72)
    data = base64.b64encode(picture.getvalue()).decode()
    return f'{text}<img alt="timeline and stages" src="data:image/png;base64,{data}">'
