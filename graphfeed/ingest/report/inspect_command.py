"""Prints what is in a data set or a graph file: types, degrees, features, duplicates, and whether it is whole.

This is the command `graphfeed inspect`.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from graphfeed.ingest.report.dataset_report import inspect_dataset, inspect_graph_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", type=Path, help="the folder of an OnDiskDataset, such as `graphfeed ingest` writes, or a saved graph"
    )
    parser.add_argument(
        "--verify", action="store_true", help="compare a saved graph with its checksum; data sets always are"
    )


def run(options: Any) -> None:
    path = options.path
    report = inspect_graph_file(path, verify=options.verify) if path.is_file() else inspect_dataset(path)
    sys.stdout.write(f"{report}\n")
    if report.damaged:
        raise ValueError(f"{len(report.damaged)} files of {path} are damaged; make the data set again")
