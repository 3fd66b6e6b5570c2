"""Writes a data set again with nodes that are read together side by side, for graphs larger than memory.

This is the command `graphfeed reorder`.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from graphfeed.ops.arguments import parse_bytes
from graphfeed.storage.datasets.reorder import ORDERS, reorder_dataset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, help="the folder of an OnDiskDataset")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder to write; new or empty")
    parser.add_argument(
        "--by",
        choices=ORDERS,
        default="part",
        help="put neighbours together, or first what is the source of most edges (default: %(default)s)",
    )
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        help="what edges and rows may take while they are sorted, such as 4G (default: a quarter of the memory)",
    )


def run(options: Any) -> None:
    memory = None if options.memory is None else parse_bytes("--memory", options.memory)
    reorder_dataset(options.source, options.output, options.by, memory=memory)
    sys.stdout.write(f"wrote {options.output}; its `ids` are those that nodes had before\n")
