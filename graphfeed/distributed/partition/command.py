"""Partitions a stored graph with its features, and reports the cut, the balance and the halo."""

import argparse
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from graphfeed.datapipes import nodes_of_items
from graphfeed.distributed.partition.part_layout import check_num_parts
from graphfeed.distributed.partition.report import report_partition, unevenness
from graphfeed.distributed.partition.writer import write_partition
from graphfeed.distributed.pyg.partitioner import Partitioner
from graphfeed.loader import ProcessExecutor
from graphfeed.ops.arguments import check_count
from graphfeed.storage import HeteroItemSet, ItemSet
from graphfeed.storage.datasets import TASK_SECONDS, check_new_folder, open_in_files
from graphfeed.storage.graph import METHODS, ByType, assign_nodes, from_type_dict, ldg_memory, load_graph, to_type_dict
from graphfeed.storage.memory import map_npy


def open_stored(source: Path) -> Any:
    """Open a graph file or a data set; return an object with the attributes `graph` and `feature` (or None)."""
    if not source.is_dir():
        return SimpleNamespace(graph=load_graph(source), feature=None)
    # Edges and rows are read in chunks, so they may be larger than memory.
    dataset = open_in_files(source)
    dataset.load(tasks=[])
    if dataset.graph is None:
        raise ValueError(f"the data set in {source} has no graph")
    return dataset


def part_items(given: list[str]) -> ItemSet | HeteroItemSet:
    sets: dict[str, ItemSet] = {}
    for entry in given:
        # The name of a file may contain a "=" itself.
        seed_type, _, path = ("", "", entry) if Path(entry).is_file() else entry.rpartition("=")
        sets[seed_type] = ItemSet(map_npy(path), names="seeds")
    if len(sets) < len(given) or ("" in sets and len(sets) > 1):
        raise ValueError(f"--balance takes one file, or TYPE=FILE once for each type, but got {' '.join(given)}")
    return sets[""] if "" in sets else HeteroItemSet(sets)


def nodes_by_type(item_set: ItemSet | HeteroItemSet) -> ByType:
    """Return the node that decides which part owns each item, by type if there are types."""
    found: dict[str | None, list[torch.Tensor]] = {}
    for node_type, nodes in nodes_of_items(item_set):
        found.setdefault(node_type, []).append(nodes)
    by_type: ByType = from_type_dict({node_type: torch.cat(pieces) for node_type, pieces in found.items()})
    return by_type


def add_partition_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", type=Path, help="a file that graph.save() wrote, or the folder of an OnDiskDataset")
    parser.add_argument("root", type=Path, help="the folder to write; it must be empty or not exist")
    parser.add_argument("--parts", type=int, required=True, help="the number of parts")
    parser.add_argument(
        "--method", choices=METHODS, default="ldg", help="how nodes are assigned (default: %(default)s)"
    )
    parser.add_argument(
        "--balance",
        nargs="+",
        metavar="[TYPE=]FILE",
        help="balance the training items of parts: .npy files of nodes, or of edges (N x 2); only for ldg",
    )
    parser.add_argument("--seed", type=int, default=0, help="the random seed of hash and metis (default: %(default)s)")
    parser.add_argument(
        "--layout",
        choices=("graphfeed", "pyg"),
        default="graphfeed",
        help="memory-mapped files, or those of torch_geometric.distributed (default: %(default)s)",
    )
    parser.add_argument(
        "--workers", type=int, default=1, help="number of processes that write the parts (default: %(default)s)"
    )


def run_partition(options: Any) -> None:
    """Partition a graph, and print a report."""
    # Check the arguments before reading the graph, which may take long.
    check_new_folder(options.root)
    check_num_parts(options.parts)
    check_count("--workers", options.workers, 1)
    if options.balance and options.method != "ldg":
        raise ValueError(f"--balance needs --method ldg, but got {options.method}; leave one of them out")
    items = part_items(options.balance) if options.balance else None
    if options.workers > 1 and options.layout == "pyg":
        raise ValueError("--workers needs --layout graphfeed; one process writes PyG's layout")
    stored = open_stored(options.source)
    graph = stored.graph
    print(f"{graph.total_num_nodes:,} nodes and {graph.total_num_edges:,} edges", flush=True)
    if options.method == "ldg":
        most = ldg_memory(graph.total_num_nodes, options.parts)
        most += 0 if items is None else torch.int32.itemsize * graph.total_num_nodes
        print(f"assigning the nodes takes at most {most / (1 << 20):,.0f} MiB in addition to the graph", flush=True)
    balance = None if items is None else nodes_by_type(items)
    assignment = assign_nodes(graph, options.parts, options.method, options.seed, balance)
    print(report_partition(graph, assignment, options.parts), flush=True)
    if balance is not None:
        # An item belongs to the part of its node.
        parts = to_type_dict(assignment)
        owners = torch.cat([parts[node_type][nodes] for node_type, nodes in to_type_dict(balance).items()])
        counts = torch.bincount(owners, minlength=options.parts).tolist()
        print(f"items of the largest part over the mean: {unevenness(counts):.2f}", flush=True)
    if options.layout == "pyg":
        Partitioner(stored, options.parts, options.root, method=assignment).generate_partition()
    else:
        pool = ProcessExecutor(options.workers, timeout=TASK_SECONDS) if options.workers > 1 else nullcontext()
        with pool as executor:
            write_partition(options.root, graph, assignment, options.parts, stored.feature, executor)
    print(f"wrote {options.parts} parts to {options.root}")
