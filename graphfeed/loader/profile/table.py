"""A profile as text of at most 20 lines."""

import textwrap

from graphfeed.loader.profile.summary import Summary
from graphfeed.loader.profile.verdict import Verdict, percent

WIDTH = 110
MOST_LINES = 20
COLUMNS = "{:8}  {:>8}  {:>8}  {:>6}  {:>6}  {}{}"


def write_table(summary: Summary, verdict: Verdict) -> str:
    text = verdict.text[0].upper() + verdict.text[1:] + "."
    above, below = textwrap.wrap(text, WIDTH, max_lines=6), [*window_lines(summary), *other_lines(summary)]
    return "\n".join([*above, "", *stage_lines(summary, MOST_LINES - len(above) - len(below) - 1), *below])


def stage_lines(summary: Summary, most: int) -> list[str]:
    """Return a heading, and a line for each stage, the source first."""
    has_gpu = any(stage.gpu_ms for stage in summary.stages)
    shown = {id(stage) for stage in summary.stages}
    # If these are too many, those that take the least time share a line.
    if len(shown) > most - 1:
        shown = {id(stage) for stage in sorted(summary.stages, key=lambda stage: -stage.ms)[: most - 2]}
    lines = [COLUMNS.format("where", "ms", "p95", "share", "CPU", f"{'GPU ms':>8}  " if has_gpu else "", "stage")]
    lines += [
        COLUMNS.format(
            stage.row.where,
            f"{stage.ms:.2f}",
            f"{stage.p95_ms:.2f}",
            percent(stage.share),
            percent(stage.cpu),
            f"{stage.gpu_ms:8.2f}  " if has_gpu else "",
            stage.row.name,
        )
        for stage in summary.stages
        if id(stage) in shown
    ]
    rest = [stage for stage in summary.stages if id(stage) not in shown]
    if rest:
        ms = f"{sum(stage.ms for stage in rest):.2f}"
        lines.append(COLUMNS.format("", ms, "", "", "", " " * 10 if has_gpu else "", f"{len(rest)} others"))
    return lines


def window_lines(summary: Summary) -> list[str]:
    """Return the loop's line, and one for the workers if there are any."""
    lines = [
        f"{'loop':8}  {summary.step_ms:8.2f}  {'':24}  your step; it waits {percent(summary.waits)} of the time, "
        f"{summary.first_seconds:.2f} s for the first mini-batch"
    ]
    setting = summary.setting
    if setting.num_workers:
        lines.append(
            f"workers: {setting.num_workers} ({setting.worker}), busy {percent(summary.busy)}; window of "
            f"{setting.window}: {summary.in_flight:.1f} in flight, {summary.ready:.1f} ready"
        )
        lines.append(
            f"on the way: {summary.queue_ms:.2f} ms until a worker begins, {summary.transfer_ms:.2f} ms back; workers "
            f"replaced: {summary.num_replaced}"
        )
    return lines


def other_lines(summary: Summary) -> list[str]:
    """Return lines for the rate, the features and the caches."""
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
