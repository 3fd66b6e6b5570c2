"""Printable form of a plan: where each stage runs, and the estimated size of its output."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from graphfeed.datapipes import Datapipe, FeatureFetcher, Transform
from graphfeed.datapipes.pipeline import BatchSizeEstimate, describe_stage, traverse
from graphfeed.loader.executors import available_cores, cpu_quotas
from graphfeed.loader.profile import LoaderConfig, StageRow, Summary, find_caches
from graphfeed.loader.rules import device_of
from graphfeed.loader.stages.decode_features import decoded_features
from graphfeed.loader.stages.in_workers import ByIndex, InThreads, InWorkers
from graphfeed.loader.stages.issue_ahead import IssueAhead
from graphfeed.loader.stages.prefetch import Prefetch, StreamPrefetch
from graphfeed.storage import EncodedFeature, SamplingGraph, SamplingRequest
from graphfeed.storage.features import PlannedRows, RowMemory
from graphfeed.storage.graph import SHARE, GraphArrays
from graphfeed.storage.memory import Cache

HEADINGS = ("where", "device", "stream", "bytes", "no.", "stage")
ON_A_DEVICE = slice(1, 3)
"""The columns that are only shown if there is a device."""
UNITS = ("B", "kB", "MB", "GB", "TB")
UNKNOWN = "?"
BYTES_NOTE = "bytes: estimated output size, from average degrees; not an upper bound"
UNKNOWN_NOTE = f"{UNKNOWN}: unknown; user-defined stages may define estimate_size()"


def describe_setting(running: Datapipe, num_workers: int, worker: str) -> LoaderConfig:
    """Return the configuration of a plan for a profile: the stages as written, source first, and the workers."""
    listed = list(list_stages(running, Location("main", ""), 0))[::-1]
    in_flight = max((stage.in_flight for stage, _, _ in listed if isinstance(stage, InWorkers)), default=0)
    rows = [
        StageRow(stage.position, type(stage).__name__, location.where)
        for stage, location, _ in listed
        if not stage.traits.inserted
    ]
    cores = available_cores()
    quota = min((quota for quota in cpu_quotas() if quota < cores), default=None)
    cores = cores if quota is None else ceil(quota)
    return LoaderConfig(tuple(rows), num_workers if in_flight else 0, worker, in_flight, cores, quota)


@dataclass(frozen=True)
class Location:
    """Thread or process and CUDA stream in which stages run."""

    where: str
    """"main" (the caller's thread), "prefetch" (a thread ahead of it), "thread" (of a pool), "worker" or "server"."""
    stream: str
    """Name of the CUDA stream used after a copy to a device."""


def describe_plan(running: Datapipe, summary: Summary | None = None) -> list[str]:
    """Return a table of the stages, the last one first, indented more towards the source."""
    measured = {} if summary is None else {(stage.row.position, stage.row.name): stage.ms for stage in summary.stages}
    expected = estimate_all(running)
    rows: list[tuple[str, ...]] = []
    for stage, location, depth in list_stages(running, Location("main", "caller's"), 0):
        device = device_of(stage)
        on_device = ("cpu", "") if device is None else (str(device), location.stream)
        text = "  " * depth + describe_stage(stage)
        size = expected[id(stage)]
        ms = measured.get((stage.position, type(stage).__name__))
        # The summary of a profile adds a column: milliseconds of each stage per mini-batch.
        times = [] if summary is None else ["" if ms is None else f"{ms:.2f}"]
        size_text = UNKNOWN if size is None else bytes_text(size.num_bytes)
        # The stage's number in error messages.
        number = "" if stage.traits.inserted else str(stage.position)
        rows.append((location.where, *on_device, *times, size_text, number, text))
    table: list[tuple[str, ...]] = [HEADINGS if summary is None else (*HEADINGS[:-3], "ms", *HEADINGS[-3:]), *rows]
    if device_of(running) is None and all(row[1] == "cpu" for row in rows):
        table = [(*row[: ON_A_DEVICE.start], *row[ON_A_DEVICE.stop :]) for row in table]
    notes = [BYTES_NOTE, *([UNKNOWN_NOTE] if any(row[-3] == UNKNOWN for row in rows) else [])]
    return [*pad_cells(table), *notes]


def describe_storage(running: Datapipe, memories: Iterable[RowMemory] = ()) -> list[str]:
    caches = describe_caches(find_caches(running, memories))
    return [*caches, *describe_codes(running), *describe_graphs(running), *describe_hops(running)]


def describe_codes(running: Datapipe) -> list[str]:
    """Return a line for each feature that is decoded on read, with its bits and its largest error."""
    fetched = [decoded_features(stage) for stage in traverse(running) if isinstance(stage, FeatureFetcher)]
    found = {key: own for features in fetched for key, own in features.items() if isinstance(own, EncodedFeature)}
    lines = [f"  {own!r}; {' '.join(part for part in key if part)}" for key, own in found.items()]
    return ["features that are stored as codes, and decoded on read:", *lines] if lines else []


def describe_hops(running: Datapipe) -> list[str]:
    """Return a line for each sampler that samples hop by hop rather than all hops in one program."""
    lines = []
    for stage in traverse(running):
        graph, request = (getattr(stage, name, None) for name in ("graph", "request"))
        if isinstance(graph, SamplingGraph) and isinstance(request, SamplingRequest):
            device = device_of(stage)
            way = graph.way(request, on_cpu=device is None or str(device) == "cpu")
            if not way.at_once:
                lines.append(f"  {type(stage).__name__}: {way.reason}")
    return ["samplers that sample hop by hop, not in one program:", *lines] if lines else []


def describe_caches(caches: Iterable[tuple[str, Cache]]) -> list[str]:
    lines: list[str] = []
    for names, cache in caches:
        size = bytes_text(cache.max_size_in_bytes)
        lines.append(f"  {cache.kind}: {size}, {cache.hits:,} hits, {cache.misses:,} misses; {names}")
        lines += describe_reads(cache) if isinstance(cache, PlannedRows) else []
    return ["caches, as used by this process so far:", *lines] if lines else []


def describe_graphs(running: Datapipe) -> list[str]:
    """Return a line for each graph in mapped files: its size, the free memory found, and how it is therefore read."""
    found = {id(graph): graph for stage in traverse(running) for graph in vars(stage).values()}
    lines = []
    for files in [graph.files_read() for graph in found.values() if isinstance(graph, GraphArrays)]:
        limit = f"1/{SHARE} of {bytes_text(files.free)} of free memory"
        if files.reads is not None:
            kept = f"; indptr, {bytes_text(files.starts_bytes)}, stays in memory" if files.keeps_starts else ""
            how = f"more than {limit}: pages are prefetched in the order of the file{kept}"
        else:
            how = f"at most {limit}: read like memory"
        lines += [f"  {bytes_text(files.num_bytes)}, {how}"] if files.num_bytes else []
    return ["graphs in mapped files, as this process reads them:", *lines] if lines else []


def describe_reads(rows: PlannedRows) -> list[str]:
    """Return lines about the rows read ahead, and their number relative to the possible minimum."""
    counts, feature = rows.counts, rows.feature
    if not counts.rows or not rows.misses:
        return []
    # Rows that did not fit into a window's memory may have been read for the next window before they were needed.
    ratio = max(1.0, counts.rows / rows.misses)
    lines = [
        f"    {counts.minibatches:,} mini-batches in {counts.windows:,} windows, so "
        f"{counts.minibatches / max(1, counts.windows):.1f} per window; {counts.rows:,} rows read, "
        f"{ratio:.2f} times the minimum for these windows and this memory"
    ]
    if counts.reads and feature.gap_bytes is not None:
        between = max(0, counts.num_bytes - counts.rows * feature.row_bytes) / counts.num_bytes
        lines.append(
            f"    {counts.reads:,} reads of {bytes_text(counts.num_bytes / counts.reads)} on average, "
            f"{100 * between:.0f} % of it between rows: gaps of up to {bytes_text(feature.gap_bytes)} between two rows "
            "are read as well, which takes no longer than a second read on a typical disk"
        )
    return [*lines, f"    {counts.seconds:.2f} s were spent waiting for {feature.waits_for}"]


def describe_rules(applied: Sequence[Callable[..., Datapipe]]) -> list[str]:
    if not applied:
        return ["rules: none; every stage runs where the loader is iterated"]
    width = max(len(rule.__name__) for rule in applied)
    # The first line of a rule's docstring is addressed to users.
    return ["rules:", *(f"  {rule.__name__:{width}}  {(rule.__doc__ or '').splitlines()[0]}" for rule in applied)]


def describe_written(written: Datapipe) -> list[str]:
    return ["  " * depth + describe_stage(stage) for stage, _, depth in list_stages(written, Location("main", ""), 0)]


def describe_in_line(running: Datapipe) -> str:
    """Return one line with the stages and where they run, source first; branches of a join are in brackets."""
    locations = {id(stage): location.where for stage, location, _ in list_stages(running, Location("main", ""), 0)}
    return outline(running, locations)[0]


def outline(stage: Datapipe, locations: Mapping[int, str]) -> tuple[str, str]:
    """Return the outline of the stages up to this one, and the location of the last stage in it."""
    before = [outline(source, locations) for source in stage.inputs]
    text, where = ("", "") if not before else before[0]
    if len(before) > 1:
        text, where = f"[{', '.join(text for text, _ in before)}]", ""
    if stage.traits.inserted:
        return text, where
    here = locations[id(stage)]
    name = type(stage).__name__ if where == here else f"{here}: {type(stage).__name__}"
    if not text:
        return name, here
    return f"{text}{' -> ' if where == here else ' | '}{name}", here


def pad_cells(table: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        *cells, size, number, text = row
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
        lines.append("  ".join([*padded, size.rjust(widths[-3]), number.rjust(widths[-2]), text]))
    return lines


def estimate_all(pipe: Datapipe) -> dict[int, BatchSizeEstimate | None]:
    sizes: dict[int, BatchSizeEstimate | None] = {}
    for stage in traverse(pipe):
        before = [sizes[id(source)] for source in stage.inputs]
        sizes[id(stage)] = stage.estimate_size(before[0] if len(before) == 1 else None)
    return sizes


def bytes_text(size: float) -> str:
    """Format a number of bytes with two or three digits, which is enough for an estimate.

    Example:
        >>> bytes_text(1_234_567)
        '1.2 MB'
    """
    unit = 0
    while size >= 999.5 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {UNITS[unit]}" if unit == 0 or size >= 9.95 else f"{size:.1f} {UNITS[unit]}"


def list_stages(stage: Datapipe, location: Location, depth: int) -> Iterator[tuple[Datapipe, Location, int]]:
    """Yield each stage, its location, and its distance from the last stage."""
    yield stage, location, depth
    if isinstance(stage, (InWorkers, InThreads)):
        inside = Location("thread", location.stream)
        if isinstance(stage, InWorkers):
            inside = Location("server" if stage.servers else "worker", "")
        source, depth = stage.datapipe, depth + 1
        while isinstance(source, Transform):
            yield source, inside, depth
            source, depth = source.datapipe, depth + 1
        # Workers run a source that can be sharded; the mini-batches of any other source are sent to them.
        yield from list_stages(source, inside if isinstance(source, ByIndex) else location, depth)
        return
    if isinstance(stage, IssueAhead):
        location = Location(location.where, stage.stream)
    elif isinstance(stage, StreamPrefetch):
        location = Location("prefetch", stage.stream)
    elif isinstance(stage, Prefetch):
        location = Location("prefetch", location.stream)
    for source in stage.inputs:
        yield from list_stages(source, location, depth + 1)
