"""Prints what is in a data set: types, counts, degrees, features, isolated nodes, duplicates, and whether it is whole.

This is the command `graphfeed inspect`.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from graphfeed.ingest.report.dataset_report import inspect_dataset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("folder", type=Path, help="the folder of an OnDiskDataset, such as `graphfeed ingest` writes")


def run(options: Any) -> None:
    """Print a report."""
    report = inspect_dataset(options.folder)
    sys.stdout.write(f"{report}\n")
    if report.damaged:
        raise ValueError(f"{len(report.damaged)} files of {options.folder} are damaged; make the data set again")
