"""PyG's `ClusterData` and `ClusterLoader`: node clusters with few edges between them, and mini-batches of several."""

import copy
import warnings
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.data import Dataset

from graphfeed.datapipes import Datapipe, MiniBatch
from graphfeed.ops.arguments import brief, check_count, checked, kind_of
from graphfeed.ops.structure import coo_to_csc, expand_indptr
from graphfeed.pyg.data.features_of_data import FLAT, DataFeatures, domain_of, features_of_data, is_frame, is_trained
from graphfeed.pyg.data.graph_of_data import data_edges, graph_of_data
from graphfeed.pyg.data.tables import check_data, check_untyped, import_pyg, tables_of
from graphfeed.pyg.loaders.pyg_loader import PyGLoader, TorchOptions
from graphfeed.pyg.stages.sampler_output import ToSamplerOutput
from graphfeed.storage import ItemSet, TorchBasedFeature, from_coo
from graphfeed.storage.graph import assign_by_ldg, assign_by_metis
from graphfeed.storage.memory import read_tensors, write_tensors

SparseFormat = Literal["csr", "csc"]


@dataclass(frozen=True, eq=False)
class Partition:
    """A graph in the order of its clusters, with PyG's field names."""

    indptr: torch.Tensor
    """Offsets of the edges of each node in the new order: those from it ("csr") or those to it ("csc")."""
    index: torch.Tensor
    """Position of the other endpoint of each edge in the new order."""
    partptr: torch.Tensor
    """Offsets of the clusters among the nodes."""
    node_perm: torch.Tensor
    """Id of the node at each position."""
    edge_perm: torch.Tensor
    """Id of the edge at each position."""
    sparse_format: SparseFormat


class ClusterData(Dataset[Any]):
    """Clusters the nodes of a graph, as `torch_geometric.loader.ClusterData` does. An item is the `Data` of a cluster.

    If pymetis is installed (the extra `partition`), METIS finds the clusters. Otherwise a streaming algorithm does
    (see `graphfeed.distributed.assign_nodes`), with more edges between clusters. Neither pyg-lib nor torch-sparse is
    needed. `ClusterLoader` joins several clusters into a mini-batch.

    Args:
        data: A `torch_geometric.data.Data`.
        num_parts: The number of clusters. If some of them have no nodes, a warning gives their number.
        recursive: Whether METIS uses recursive bisection.
        save_dir, filename: Where the clusters are saved and read again. Files of PyG are read, too.
        log: Has no effect. In a terminal, a progress bar appears after one second.
        keep_inter_cluster_edges: Whether an item has the edges to other clusters ("csr"), or from them ("csc"). Their
            other endpoints are positions among all nodes.
        sparse_format: Whether edges are grouped by source ("csr") or by destination ("csc").

    Raises:
        ValueError: `data` has types, `num_parts` is below 1, the format is unknown, or the file is damaged or belongs
            to another graph.
    """

    @checked
    def __init__(
        self,
        data: Any,
        num_parts: int,
        recursive: bool = False,
        save_dir: str | None = None,
        filename: str | None = None,
        log: bool = True,
        keep_inter_cluster_edges: bool = False,
        sparse_format: SparseFormat = "csr",
    ) -> None:
        del log
        check_data(data)
        check_untyped(data, type(self).__name__)
        check_count("num_parts", num_parts, 1)
        if sparse_format not in ("csr", "csc"):
            raise ValueError(f"sparse_format must be 'csr' or 'csc', but is {brief(sparse_format)}")
        self.num_parts, self.recursive, self.sparse_format = num_parts, recursive, sparse_format
        self.keep_inter_cluster_edges = keep_inter_cluster_edges
        folder = Path(save_dir or "") / f"part_{num_parts}{'_recursive' if recursive else ''}"
        path = folder / (filename or "metis.pt")
        if save_dir is not None and path.exists():
            self.partition = read_partition(path, data, num_parts)
            self.sparse_format = self.partition.sparse_format
        else:
            graph = graph_of_data(data).graph
            if find_spec("pymetis") is None:
                clusters = assign_by_ldg(graph, num_parts)
            else:
                clusters = assign_by_metis(graph, num_parts, recursive=recursive)
            self.partition = partition_by(data, clusters, num_parts, sparse_format)
            if save_dir is not None:
                folder.mkdir(parents=True, exist_ok=True)
                # Saved as a dict of tensors, so that reading it unpickles nothing else.
                write_tensors(path, dict(vars(self.partition)))
        empty = int((self.partition.partptr.diff() == 0).sum())
        if empty:
            warnings.warn(f"{empty} of {num_parts} clusters have no nodes; give fewer num_parts", stacklevel=2)
        self.data = self.permuted(data)

    def permuted(self, data: Any) -> Any:
        """Return the data with nodes and edges in the new order, but without the edges themselves."""
        out = copy.copy(data)
        table = tables_of(data).nodes[None]
        # Classify the attributes now, because PyG can't without the list of edges.
        self._domains = {name: domain_of(data, table, name, None) for name in table.keys()}  # noqa: SIM118
        orders = {"node": self.partition.node_perm, "edge": self.partition.edge_perm}
        for name, domain in self._domains.items():
            if is_trained(data[name]):
                raise TypeError(
                    f"{name} is {kind_of(data[name])}, whose rows can't be reordered; give the data the ids of "
                    f"the {domain}s instead, and fetch their rows in your loop: table.fetch(batch.ids)"
                )
            if domain is not None:
                out[name] = select(data, name, data[name], orders[domain])
        # Each cluster gets its own edges.
        out.edge_index = None
        return out

    def __len__(self) -> int:
        return len(self.partition.partptr) - 1

    def __getitem__(self, idx: int) -> Any:
        # A range accepts negative indexes, and raises the IndexError that ends a loop over all clusters.
        part, cluster = self.partition, range(len(self))[idx]
        low, high = part.partptr[cluster : cluster + 2].tolist()
        starts = part.indptr[low : high + 1]
        first, last = int(starts[0]), int(starts[-1])
        # The endpoint that groups the edges counts from the cluster's first node, the other one among all nodes.
        ends = [expand_indptr(starts - first, torch.int64, output_size=last - first), part.index[first:last]]
        kept: Any = slice(first, last)
        # Without edges to other clusters, both endpoints count from the cluster's first node.
        if not self.keep_inter_cluster_edges:
            inside = (ends[1] >= low) & (ends[1] < high)
            ends = [ends[0][inside], ends[1][inside] - low]
            kept = inside.nonzero().squeeze(1) + first
        out = copy.copy(self.data)
        rows = {"node": slice(low, high), "edge": kept}
        for name, value in self.data.items():
            if name == "num_nodes":
                out.num_nodes = high - low
            elif (domain := self._domains.get(name)) is not None:
                out[name] = select(self.data, name, value, rows[domain])
        out.edge_index = torch.stack(ends if part.sparse_format == "csr" else ends[::-1])
        return out

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_parts})"


def select(data: Any, name: str, value: Any, positions: Any) -> Any:
    """Select rows of a node or edge attribute by a slice or a tensor of positions."""
    if not isinstance(value, torch.Tensor):
        rows = positions.tolist() if isinstance(positions, torch.Tensor) else range(len(value))[positions]
        return value[positions] if hasattr(value, "ndim") or is_frame(value) else [value[row] for row in rows]
    dim = data.__cat_dim__(name, value)
    if isinstance(positions, slice):
        return value.narrow(dim, positions.start, positions.stop - positions.start)
    return value.index_select(dim, positions.to(value.device))


def partition_by(data: Any, clusters: torch.Tensor, num_parts: int, sparse_format: SparseFormat) -> Partition:
    """Build the partition from the cluster of each node; nodes and edges keep their order within a cluster."""
    count = len(clusters)
    node_perm = torch.argsort(clusters, stable=True)
    partptr = torch.cat(
        [torch.zeros(1, dtype=torch.int64, device="cpu"), torch.bincount(clusters, minlength=num_parts).cumsum(0)]
    )
    positions = torch.empty(count, dtype=torch.int64, device="cpu")
    positions[node_perm] = torch.arange(count, device="cpu")
    edges = data_edges(tables_of(data).edges[None], None, reverse=sparse_format == "csc")
    source, destination = (positions[ids] for ids in edges.ends())
    # A counting sort by the other endpoint, then a stable one by this endpoint.
    first = coo_to_csc(source, destination, count).order
    columns = coo_to_csc(destination[first], source[first], count)
    return Partition(columns.indptr, columns.indices, partptr, node_perm, first[columns.order], sparse_format)


def read_partition(path: Path, data: Any, num_parts: int) -> Partition:
    """Read the partition of this graph from a file, or raise a ValueError. Only tensors are unpickled."""
    found = read_tensors(path, [import_pyg("torch_geometric.loader.cluster", "ClusterData").Partition])
    # PyG's files have an object of this class, this package's have a dict.
    fields = found if isinstance(found, dict) else getattr(found, "__dict__", {})
    num_edges = len(data_edges(tables_of(data).edges[None], None))
    count = tables_of(data).count_nodes()
    sizes = {
        "indptr": count + 1,
        "index": num_edges,
        "partptr": num_parts + 1,
        "node_perm": count,
        "edge_perm": num_edges,
    }
    right = set(fields) == set(Partition.__dataclass_fields__) and fields["sparse_format"] in ("csr", "csc")
    if not right or any(not is_row_ids(fields[name], size) for name, size in sizes.items()) or not is_right(fields):
        raise ValueError(
            f"{path} must have {num_parts} clusters of {count} nodes and {num_edges} edges, but is of "
            "another graph; remove it or give another filename"
        )
    return Partition(**fields)


def is_row_ids(value: Any, size: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.shape == (size,)


def is_right(fields: dict[str, torch.Tensor]) -> bool:
    """Return whether the permutations are complete and the offsets valid."""
    nodes, edges = len(fields["node_perm"]), len(fields["edge_perm"])
    once = all(
        torch.equal(fields[name].sort().values, torch.arange(size, device="cpu"))
        for name, size in (("node_perm", nodes), ("edge_perm", edges))
    )
    rises = all(
        int(part[0]) == 0 and int(part[-1]) == size and bool((part.diff() >= 0).all())
        for part, size in ((fields["indptr"], edges), (fields["partptr"], nodes))
    )
    index = fields["index"]
    return once and rises and (edges == 0 or (int(index.min()) >= 0 and int(index.max()) < nodes))


class ClusterLoader(PyGLoader):
    """Joins clusters into mini-batches with all edges among them, as `torch_geometric.loader.ClusterLoader` does.

    A mini-batch has the nodes of its clusters, one cluster after another. `n_id` and `e_id` are the ids of its nodes
    and edges in the clustered data.

    Args:
        cluster_data: A `graphfeed.pyg.ClusterData`, or PyG's.
        kwargs: As for `NodeLoader`; `batch_size` is the number of clusters per mini-batch.
    """

    is_subgraph = True

    def __init__(self, cluster_data: Any, **kwargs: Any) -> None:
        theirs = import_pyg("torch_geometric.loader", type(self).__name__).ClusterData
        if not isinstance(cluster_data, (ClusterData, theirs)):
            raise TypeError(f"cluster_data must be a ClusterData, but is {kind_of(cluster_data)}")
        options = TorchOptions.of(kwargs, type(self).__name__)
        part = cluster_data.partition
        # The columns of a graph group edges by destination; edges that are grouped by source are reversed.
        backward = part.sparse_format == "csr"
        ends = (part.index, expand_indptr(part.indptr, torch.int64, output_size=len(part.index)))
        graph = from_coo(ends, len(part.node_perm))
        self.cluster_data, self._edge_index = cluster_data, torch.stack(ends[::-1] if backward else ends)
        parts = options.source(ItemSet(len(cluster_data), names="seeds"))
        nodes = parts.transform(partial(take_parts, tuple(part.partptr.tolist())))
        pipe: Datapipe = ToSamplerOutput(nodes.induce_subgraph(graph), subgraph_type="induced", backward=backward)
        super().__init__(self._fill(pipe, self._read_features()), options, cluster_data.data)

    def _read_features(self) -> DataFeatures:
        data, part = copy.copy(self.cluster_data.data), self.cluster_data.partition
        data.edge_index = self._edge_index
        features = features_of_data(data)
        for domain, name, ids in (("node", "n_id", part.node_perm), ("edge", "e_id", part.edge_perm)):
            names = (features.node_names if domain == "node" else features.edge_names)[None]
            if name not in names:  # the data may have an attribute of that name
                features.store[domain, None, name] = TorchBasedFeature(ids[:, None])
                names.append(name)
                features.dims[None, name] = FLAT
        return features


def take_parts(bounds: tuple[int, ...], minibatch: MiniBatch) -> MiniBatch:
    """Set the input nodes to the nodes of the clusters in `seeds`, in their order; `bounds` are the offsets."""
    result = copy.copy(minibatch)
    result.input_nodes = torch.cat(
        [torch.arange(bounds[part], bounds[part + 1], device="cpu") for part in minibatch.seeds.tolist()]
    )
    result.seeds = None
    return result
