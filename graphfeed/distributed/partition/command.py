"""Partitions a graph in files, with its features, and reports the cut, the balance and the halo.

This is the command `graphfeed partition`.
"""

import argparse
from pathlib import Path
from typing import Any

from graphfeed.distributed.partition.halo import HaloFeatures, plan_halo
from graphfeed.distributed.partition.part_layout import check_num_parts
from graphfeed.distributed.partition.report import report_partition
from graphfeed.distributed.partition.writer import write_partition
from graphfeed.distributed.pyg.partitioner import Partitioner
from graphfeed.ops.arguments import parse_bytes
from graphfeed.storage import FeatureStore
from graphfeed.storage.datasets import OnDiskDataset, check_new_folder
from graphfeed.storage.graph import METHODS, FusedCSCSamplingGraph, assign_nodes, ldg_memory, load_graph

MIB = 1 << 20


class Stored:
    """A graph in files, and its features if it has any."""

    def __init__(self, source: Path) -> None:
        self.graph: FusedCSCSamplingGraph
        self.feature: FeatureStore | None = None
        if not source.is_dir():
            self.graph = load_graph(source)
            return
        dataset = OnDiskDataset(source)
        # Edges and rows are read piece by piece, so that they may be larger than memory.
        for entry in dataset.yaml_data.get("feature_data") or ():
            entry["in_memory"] = False
        topology = dataset.yaml_data.get("graph_topology") or {}
        dataset.yaml_data["graph_topology"] = {**topology, "in_memory": False}
        dataset.load(tasks=[])
        if dataset.graph is None:
            raise ValueError(f"the data set in {source} has no graph")
        self.graph, self.feature = dataset.graph, dataset.feature


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", type=Path, help="a file that graph.save() wrote, or the folder of an OnDiskDataset")
    parser.add_argument("root", type=Path, help="the folder to write to; it must not exist or be empty")
    parser.add_argument("--parts", type=int, required=True, help="the number of parts")
    parser.add_argument(
        "--method", choices=METHODS, default="ldg", help="how nodes are assigned (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed of hash and metis (default: %(default)s)")
    parser.add_argument(
        "--layout",
        choices=("graphfeed", "pyg"),
        default="graphfeed",
        help="files that are mapped, or those of torch_geometric.distributed (default: %(default)s)",
    )
    parser.add_argument(
        "--halo-features",
        metavar="BYTES",
        help="store with each part copies of rows that it often asks others for, up to a size such as 2G",
    )


def run(options: Any) -> None:
    """Partition a graph, and print what the partition costs."""
    check_new_folder(options.root)
    check_num_parts(options.parts)
    most_bytes = options.halo_features and parse_bytes("--halo-features", options.halo_features)
    if most_bytes and options.layout == "pyg":
        raise ValueError("--halo-features needs --layout graphfeed; PyG's layout has no place for copies of rows")
    stored = Stored(options.source)
    graph = stored.graph
    print(f"{graph.total_num_nodes:,} nodes and {graph.total_num_edges:,} edges", flush=True)
    if options.method == "ldg":
        most = ldg_memory(graph.total_num_nodes, options.parts) / MIB
        print(f"assigning the nodes takes at most {most:,.0f} MiB beside the graph", flush=True)
    assignment = assign_nodes(graph, options.parts, options.method, options.seed)
    print(report_partition(graph, assignment, options.parts), flush=True)
    halo: HaloFeatures = 0
    if most_bytes:
        plan = plan_halo(graph, assignment, options.parts, stored.feature, most_bytes)
        print(plan, flush=True)
        halo = plan.ids
    if options.layout == "pyg":
        Partitioner(stored, options.parts, options.root, method=assignment).generate_partition()
    else:
        write_partition(options.root, graph, assignment, options.parts, stored.feature, halo)
    print(f"wrote {options.parts} parts to {options.root}")
