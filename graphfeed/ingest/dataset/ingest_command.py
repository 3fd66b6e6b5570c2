"""Builds a data set from tables (Parquet, Arrow, CSV, NDJSON, NumPy or TFRecord files) as specified in a YAML file."""

import argparse
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from graphfeed.ingest.dataset.dataset_builder import build_dataset
from graphfeed.ingest.dataset.guess_spec import guess_yaml
from graphfeed.ingest.dataset.relbench import MANIFEST, from_relbench
from graphfeed.loader import ProcessExecutor
from graphfeed.ops.arguments import check_count, parse_bytes
from graphfeed.storage.datasets import TASK_SECONDS, memory_for_sorting


def add_ingest_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="the specification and the folder to write; or some tables"
    )
    parser.add_argument(
        "--guess", action="store_true", help="print a first specification for the tables, from their names and columns"
    )
    parser.add_argument("--task", help=f"a task of the data set of RelBench whose {MANIFEST} is given")
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        help="memory limit for reading tables and sorting edges, such as 4G (default: a quarter of the memory in all)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="number of processes that sort edges; each may take --memory (default: %(default)s)",
    )
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="stop at the first invalid row, or skip invalid rows and report them (default: %(default)s)",
    )


def run_ingest(options: Any) -> None:
    """Build a data set, or print a specification."""
    if options.guess:
        sys.stdout.write(guess_yaml(options.paths))
        return
    if options.task is not None and options.paths[0].name != MANIFEST:
        raise ValueError(f"--task is for data sets of RelBench, with a {MANIFEST}, but {options.paths[0]} is given")
    if len(options.paths) != 2:
        raise ValueError(f"give the specification and the folder to write, but {len(options.paths)} paths are given")
    path, folder = options.paths
    spec = from_relbench(path, options.task) if path.name == MANIFEST else path
    check_count("--workers", options.workers, 1)
    memory = memory_for_sorting() // options.workers
    memory = memory if options.memory is None else parse_bytes("--memory", options.memory)
    pool = ProcessExecutor(options.workers, timeout=TASK_SECONDS) if options.workers > 1 else nullcontext()
    with pool as executor, warnings.catch_warnings():
        warnings.showwarning = show_warning
        dataset = build_dataset(spec, folder, memory=memory, on_error=options.on_error, executor=executor)
    skipped = dataset.yaml_data["skipped"]
    lines = [f"{entry['rows']:,} rows of {entry['file']} left out; the first: {entry['first']}" for entry in skipped]
    lines.append(f"wrote {folder}; see `graphfeed inspect {folder}` for a summary")
    sys.stdout.write("\n".join([*lines, ""]))


def show_warning(
    message: Warning | str, category: Any, filename: str, lineno: int, file: Any = None, line: str | None = None
) -> None:
    """Write a warning as one line, without the place in the code."""
    del category, filename, lineno, file, line
    sys.stderr.write(f"graphfeed ingest: warning: {message}\n")
