"""Makes a data set of tables: files of Parquet, Arrow, CSV, NDJSON, NumPy or TFRecord, by a specification in YAML.

This is the command `graphfeed ingest`.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from graphfeed.ingest.build.dataset_builder import build_dataset
from graphfeed.ingest.build.guess_spec import guess_yaml

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def as_bytes(text: str) -> int:
    """Return a number of bytes from a text such as "512M" or "4GiB".

    Example:
        >>> as_bytes("512M"), as_bytes("4 GiB"), as_bytes("1000000")
        (536870912, 4294967296, 1000000)
    """
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)(i?b)?", text.strip().lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes; write 512M or 4G")
    return int(found[1]) * UNITS[found[2]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="the specification and the folder to write; or some tables"
    )
    parser.add_argument(
        "--guess", action="store_true", help="print a first specification for the tables, by their names and columns"
    )
    parser.add_argument(
        "--memory",
        type=as_bytes,
        metavar="BYTES",
        help="what edges may take while they are sorted, such as 4G (default: a quarter of the memory)",
    )
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="stop at the first row that is wrong, or leave such rows out and report them (default: %(default)s)",
    )


def run(options: Any) -> None:
    """Make a data set, or print a specification."""
    if options.guess:
        sys.stdout.write(guess_yaml(options.paths))
        return
    if len(options.paths) != 2:
        raise ValueError(f"give the specification and the folder to write, but {len(options.paths)} paths are given")
    spec, folder = options.paths
    dataset = build_dataset(spec, folder, memory=options.memory, on_error=options.on_error)
    skipped = dataset.yaml_data["skipped"]
    lines = [f"{entry['rows']:,} rows of {entry['file']} left out; the first: {entry['first']}" for entry in skipped]
    lines.append(f"wrote {folder}; `graphfeed inspect {folder}` tells what is in it")
    sys.stdout.write("\n".join([*lines, ""]))
