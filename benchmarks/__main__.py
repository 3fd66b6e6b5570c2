"""python -m benchmarks WHAT: medians, and ratios to this machine's own limits."""

import argparse
from dataclasses import replace
from pathlib import Path

from benchmarks import (
    cache,
    channels,
    cold,
    cores,
    cuda,
    distributed,
    epoch,
    events,
    first_use,
    gather,
    gpu_cache,
    ingest,
    larger_than_memory,
    loader,
    memory,
    peers,
    profile,
    pyg,
    sampling,
    small_calls,
    trained_on_disk,
    training,
    typed,
    walks,
    worker_start,
)
from benchmarks.graphs import default_cache
from benchmarks.record import Watch, record, shortcomings, write_record
from benchmarks.scale import full, large, quick
from benchmarks.table import machine

REPORTS = {
    "sampling": sampling.report,
    "gather": gather.report,
    "loader": loader.report,
    "first_use": first_use.report,
    "cold": cold.report,
    "cores": cores.report,
    "worker_start": worker_start.report,
    "cache": cache.report,
    "channels": channels.report,
    "distributed": distributed.report,
    "epoch": epoch.report,
    "events": events.report,
    "cuda": cuda.report,
    "gpu_cache": gpu_cache.report,
    "ingest": ingest.report,
    "larger_than_memory": larger_than_memory.report,
    "memory": memory.report,
    "peers": peers.report,
    "profile": profile.report,
    "pyg": pyg.report,
    "scale": loader.report_threads,
    "small_calls": small_calls.report,
    "trained_on_disk": trained_on_disk.report,
    "training": training.report,
    "typed": typed.report,
    "walks": walks.report,
}


def main(arguments: list[str] | None = None) -> None:
    """Print the tables that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("what", choices=REPORTS)
    parser.add_argument("--quick", action="store_true", help="a small graph: seconds, no meaning")
    parser.add_argument("--large", action="store_true", help="cache: a file of 8 GB, removed at the end")
    parser.add_argument("--scale", type=float, help="larger_than_memory, trained_on_disk: times 16 (8) million rows")
    parser.add_argument("--threads", type=numbers, default=(), help="scale: 1,2,4 and so on, up to the number of cores")
    parser.add_argument("--repeats", type=int, help="rounds (30, or 3 with --quick)")
    parser.add_argument(
        "--cache-dir",
        type=Path,
        default=default_cache(),
        help="where generated graphs are kept, 2 GB (%(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="PATH", help="where to write the numbers, for the site")
    options = parser.parse_args(arguments)
    scale = quick if options.quick else full
    repeats = options.repeats or (3 if options.quick else 30)
    print(machine(), end="\n\n")
    if options.quick:
        print("A quick run shows that everything works; its numbers mean nothing.", end="\n\n")
    sizes = replace(scale(options.cache_dir, repeats), threads=options.threads)
    if options.scale is not None:
        sizes = replace(sizes, out_of_core=options.scale)
    watch, tables = Watch(settle=options.json is not None and not options.quick), []
    for table in REPORTS[options.what](large(sizes) if options.large else sizes):
        print(table, flush=True)
        tables.append(table)
    if options.json:
        flags = [f"--{name}" for name in ("quick", "large") if getattr(options, name)]
        flags += [f"--{name} {value:g}" for name in ("scale", "repeats") if (value := getattr(options, name))]
        content = record(tables, " ".join(["python -m benchmarks", options.what, *flags]), watch)
        if not options.quick and (wrong := [*shortcomings(content)]):
            parser.exit(1, "\n".join([f"{options.json} is not written:", *wrong, ""]))
        write_record(options.json, content)


def numbers(text: str) -> tuple[int, ...]:
    """Return positive numbers that are separated by commas."""
    counts = tuple(map(int, text.split(",")))
    if min(counts) < 1:
        raise ValueError
    return counts


if __name__ == "__main__":
    main()
