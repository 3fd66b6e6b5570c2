"""A graph with two partitions relative to one process, its network traffic, and the cost of the network itself."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.exchange import MESSAGES, RAW, SIZES, exchange_times
from benchmarks.scale import Scale
from benchmarks.stream import FLIGHT, SERVER, stream_rates
from benchmarks.table import Goal, Row, render
from benchmarks.timing import Times

WORLD_SIZE = 2
ALONE, LIMIT, EXCHANGED = "one process", "whole graph in each", "in parts, exchanged"
AHEAD = "in parts, exchanged, rows ahead"
"""With constant features: the rows of the next mini-batches are requested together."""
FETCHING = ", sample + fetch"
BY_ITSELF, JOINT = "each rank by itself", "joint mini-batches"
SOCKET, ONE_ASKS, BOTH_ASK = "a socket on loopback", "one rank asks", "both ranks ask"
ANSWERED = 2.5
"""Goal for the gigabytes per second that a rank sends."""
SHARE_OF_ONE = 0.5
"""Goal for a core of two processes, relative to the core of a single process."""
SHARE_OF_FLIGHT = 0.8
TIMES_A_SOCKET, LARGE_ANSWER = 2.2, 1 << 20
"""Maximum time of an answer relative to a raw socket, for answers of at least `LARGE_ANSWER` bytes."""
STREAM_SIZES = (500_000, 8_000_000)
"""Sizes of the streamed mini-batches in bytes."""
TIMES_LEAST = 1.1
WAIT_SECONDS = 1800
ROUNDS = 9
"""Maximum number of rounds: each is an epoch, not a batch."""


def report(scale: Scale) -> Iterator[str]:
    """Yield tables of two ranks relative to one process, of their traffic and reads, and of a sampling server."""
    found = run_ranks(scale)
    ranks = f"distributed: {scale.products.name}, {WORLD_SIZE} processes on one host"
    title = f"{ranks}, each on a core"
    yield render(f"{title}; ratio to one process alone, a core", throughput(found))
    yield render(f"{title}: what is sent for a mini-batch", traffic(found))
    yield render(f"{title}: rows of features that are read for a mini-batch", rows_read(found))
    yield render(f"{ranks}, on all cores: rows that a rank answers; ratio to a socket between the two", answered(found))
    title = "distributed: processor time of both sides for an answer; ratio to a raw socket"
    yield render(title, exchanged(scale))
    yield render("distributed: mini-batches of a sampling server; ratio to Flight's own stream of them", stream(scale))


def run_ranks(scale: Scale) -> dict[str, Any]:
    """Run the ranks, and return their measurements."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = {**asdict(scale), "cache": str(scale.cache), "repeats": min(scale.repeats, ROUNDS)}
        given = [json.dumps([rank, WORLD_SIZE, folder, sizes]) for rank in range(WORLD_SIZE)]
        ranks = [subprocess.Popen([sys.executable, "-m", "benchmarks.ranks", text]) for text in given]
        try:
            codes = [rank.wait(WAIT_SECONDS) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        if any(codes):
            raise RuntimeError(f"ranks ended with {codes}; what they printed is above")
        found: dict[str, Any] = json.loads((Path(folder) / "found").read_text())
        return found


def throughput(found: dict[str, Any]) -> list[Row]:
    """Return the edges per second and core of each case, by wall-clock time and by processor time."""
    rows = []
    for ending in ("", FETCHING):
        for clock, unit in (("seconds", "M edges/s"), ("cpu_seconds", "M edges/CPU s")):
            alone = rate(found["cases"][ALONE + ending], clock)
            for name in (ALONE, LIMIT, EXCHANGED, *([AHEAD] if ending else [])):
                own = rate(found["cases"][name + ending], clock)
                ratio = own.over(alone)
                goal = Goal(ratio, SHARE_OF_ONE, at_least=True) if name in (EXCHANGED, AHEAD) else None
                rows.append(Row(f"{name}{ending}", unit, own, ratio, goal))
    return rows


def rate(case: dict[str, list[float]], clock: str) -> Times:
    """Return the millions of edges per second and core of each round."""
    return Times([edges / seconds / 1e6 for edges, seconds in zip(case["edges"], case[clock], strict=True)])


def traffic(found: dict[str, Any]) -> list[Row]:
    """Return the bytes and the exchanges of a mini-batch."""
    rows = []
    for name in (EXCHANGED, AHEAD):
        sent = found["traffic"][name]
        batches = sent["batches"]
        rows.append(Row(f"{name}, sent", "kB", Times([sent["bytes"] / batches / 1e3]), counted=True))
        exchanges = sent["exchanges"] / batches
        goal = Goal(exchanges, found["hops"] + 1)
        rows.append(Row(f"{name}, exchanges", "", Times([exchanges]), goal=goal, counted=True))
        ratio = sent["bytes"] / sent["least"]
        goal = Goal(ratio, TIMES_LEAST)
        rows.append(Row(f"{name}, to the least", "times", Times([ratio]), goal=goal, counted=True))
    return rows


def rows_read(found: dict[str, Any]) -> list[Row]:
    """Return the rows of features that ranks read per mini-batch, independently and jointly."""
    counts = found["rows"]
    own, joint = (counts[name] / counts["batches"] / 1e3 for name in (BY_ITSELF, JOINT))
    return [
        Row(BY_ITSELF, "k rows", Times([own]), 1.0, counted=True),
        Row(JOINT, "k rows", Times([joint]), joint / own, counted=True),
        Row("saved", "%", Times([100 * (1 - joint / own)]), counted=True),
    ]


def answered(found: dict[str, Any]) -> list[Row]:
    """Return the bytes of rows that a rank sends per second to one or both ranks, and those of a socket."""
    rates = {name: Times(values) for name, values in found["answered"].items()}
    goal = Goal(rates[BOTH_ASK].median, ANSWERED, at_least=True)
    rows = [(SOCKET, None), (ONE_ASKS, None), (BOTH_ASK, goal)]
    return [Row(name, "GB/s", rates[name], rates[name].over(rates[SOCKET]), held) for name, held in rows]


def exchanged(scale: Scale) -> list[Row]:
    """Return the time that an answer of each size costs both sides, by transport."""
    rows = []
    for size in (size for size in SIZES if size <= scale.largest_message):
        found = exchange_times(size, min(scale.repeats, ROUNDS))
        for name, taken in found.items():
            ratio = taken.over(found[RAW])
            goal = Goal(ratio, TIMES_A_SOCKET) if name == MESSAGES and size >= LARGE_ANSWER else None
            rows.append(Row(f"{name}, {size >> 10:,} KiB", "us", taken.times(1e6), ratio, goal))
    return rows


def stream(scale: Scale) -> list[Row]:
    """Return the rates of Flight and of a sampling server, for mini-batches of each size."""
    rows = []
    for size in sorted({min(size, scale.largest_message) for size in STREAM_SIZES}):
        rates = stream_rates(size, scale.repeats)
        share = rates[SERVER].over(rates[FLIGHT])
        goal = Goal(share, SHARE_OF_FLIGHT, at_least=True)
        rows.append(Row(f"Flight, one stream, {size / 1e6:g} MB", "GB/s", rates[FLIGHT], 1.0))
        rows.append(Row(f"SamplingServer, {size / 1e6:g} MB", "GB/s", rates[SERVER], share, goal))
    return rows
