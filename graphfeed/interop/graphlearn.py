"""GraphLearn-for-PyTorch: reader of its partitioned graphs, which `write_partition` can then write."""

import io
import os
import pickle
from itertools import count, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import torch

from graphfeed.ops.arguments import checked, kind_of
from graphfeed.ops.process import regular_file
from graphfeed.storage import BasicFeatureStore, TorchBasedFeature
from graphfeed.storage.datasets import check_file
from graphfeed.storage.graph import ByType, FusedCSCSamplingGraph, from_coo, from_type_dict
from graphfeed.storage.memory import BROKEN, read_tensors

NODES, EDGES = "node_pb", "edge_pb"


class WholeGraph(NamedTuple):
    """A graph that was partitioned, in the form that `write_partition` expects."""

    graph: FusedCSCSamplingGraph
    assignment: ByType
    """Part of each node."""
    num_parts: int
    features: BasicFeatureStore
    """Node and edge features, named "feat"."""


@checked
def read_graphlearn(root: str | os.PathLike[str]) -> WholeGraph:
    """Read all parts in a folder written by a partitioner of GraphLearn-for-PyTorch into memory.

    GraphLearn's parts often have the out-edges of their nodes, graphfeed's have the in-edges. Therefore the parts are
    joined, and `write_partition` can write them again with the same assignment. Edges are ordered by their ids, weights
    become the edge attribute "weights", and types are in alphabetical order. Only tensors are unpickled: the number of
    parts and the types are taken from file names, not from the file `META`. Cached features are copies and are left
    out: `cpu_cached_feature`, or a loader's window, keeps frequently requested rows in memory.

    Args:
        root: Folder with `node_pb`, `edge_pb` and `part0`.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file contains something other than tensors, or invalid ids.
    """
    root = Path(root)
    nodes, edge_files = read_books(root, NODES), read_books(root, EDGES)
    parts = list(takewhile(Path.is_dir, (root / f"part{number}" for number in count())))
    if not parts:
        raise FileNotFoundError(f"there is no folder part0 in {root}; give the folder that holds META")
    edges, weights, features = {}, {}, {}
    for file_name, owners in edge_files.items():
        edge_type = None if None in nodes else as_edge_type(file_name)
        tensors = layout_edges(parts, file_name, len(owners))
        edges[edge_type] = (tensors["rows"], tensors["cols"])
        if "weights" in tensors:
            weights[edge_type] = tensors["weights"]
        features["edge", edge_type, "feat"] = layout_feature(parts, "edge_feat", file_name, len(owners))
    for node_type, owners in nodes.items():
        features["node", node_type, "feat"] = layout_feature(parts, "node_feat", node_type, len(owners))
    sizes = {node_type: len(owners) for node_type, owners in nodes.items()}
    attributes = {"weights": from_type_dict(weights)} if len(weights) == len(edges) else {}
    graph = from_coo(from_type_dict(edges), from_type_dict(sizes), edge_attributes=attributes)
    rows: Any = {key: TorchBasedFeature(values) for key, values in features.items() if values is not None}
    return WholeGraph(graph, from_type_dict(nodes), len(parts), BasicFeatureStore(rows))


def as_edge_type(file_name: str | None) -> str:
    parts = str(file_name).split("__")
    if len(parts) != 3:
        raise ValueError(
            f"{EDGES} has {file_name!r}, which is not an edge type; its name must be source__relation__destination"
        )
    return ":".join(parts)


def read_books(root: Path, name: str) -> dict[str | None, torch.Tensor]:
    """Return the part of each node or edge, by the file name of the type; without types, by None."""
    folder = root / name
    files: dict[str | None, Path] = {None: root / f"{name}.pt"}
    if folder.is_dir():
        files = {path.stem: path for path in sorted(folder.glob("*.pt"))}
    return {file_name: read_tensor(path).to(torch.int64) for file_name, path in files.items()}


def read_tensor(path: Path) -> torch.Tensor:
    check_file(path, "root")
    return to_tensor(path, read_tensors(path))


def to_tensor(path: Path, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{path} must hold a tensor, but holds {kind_of(value)}")
    return value


def layout_edges(parts: list[Path], file_name: str | None, size: int) -> dict[str, torch.Tensor]:
    """Return the endpoints and weights of the edges of a type, ordered by their ids."""
    folders = [folder for part in parts if (folder := part / "graph" / (file_name or "")).is_dir()]
    tensors: dict[str, torch.Tensor] = {}
    for name in ("eids", "rows", "cols", "weights"):
        paths = [folder / f"{name}.pt" for folder in folders]
        if name != "weights" or (paths and all(path.is_file() for path in paths)):
            tensors[name] = torch.cat([torch.empty(0, dtype=torch.int64, device="cpu"), *map(read_tensor, paths)])
    order = order_of(tensors.pop("eids"), size, f"edges of {file_name!r}")
    return {name: values[order] for name, values in tensors.items()}


def order_of(ids: torch.Tensor, size: int, what: str) -> torch.Tensor:
    """Return the order that sorts ids, or raise unless they are a permutation of `range(size)`."""
    order = ids.argsort()
    if not torch.equal(ids[order], torch.arange(size, device="cpu")):
        raise ValueError(f"the parts must have {size} {what}, without duplicates; partition again")
    return order


def layout_feature(parts: list[Path], group: str, file_name: str | None, size: int) -> torch.Tensor | None:
    """Return the rows of a feature ordered by their ids, or None if there is no such feature."""
    folders = [part / group / (file_name or "") for part in parts]
    folders = [folder for folder in folders if (folder / "feats.pkl").is_file()]
    if not folders:
        return None
    ids, rows = (
        torch.cat([chunk for folder in folders for chunk in read_chunks(folder / name)])
        for name in ("ids.pkl", "feats.pkl")
    )
    if len(ids) != len(rows):
        raise ValueError(f"{group} of {file_name!r} has {len(rows)} rows for {len(ids)} ids; partition again")
    rows = rows[order_of(ids, size, f"rows of {group}")]
    return rows if rows.dim() > 1 else rows[:, None]


class TensorUnpickler(pickle.Unpickler):
    """Unpickler that only supports tensors."""

    def find_class(self, module: str, name: str) -> Any:
        # A file can only use the names that construct tensors, and these are replaced by functions of this module.
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return rebuild_tensor
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return load_storage
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        raise pickle.UnpicklingError(f"it uses {module}.{name}, which is not part of a tensor")


def load_storage(content: bytes) -> Any:
    # The pickle contains a storage in the format of `torch.save`.
    return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")


def rebuild_tensor(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> torch.Tensor:
    # Without gradients and hooks. Raises an error if the tensor is larger than its storage.
    return torch.empty(0, dtype=storage.dtype, device="cpu").set_(storage).as_strided(size, stride, offset)


def read_chunks(path: Path) -> list[torch.Tensor]:
    """Return the tensors that were pickled to a file, in order."""
    check_file(path, "root")
    chunks: list[torch.Tensor] = []
    with open(path, "rb", opener=regular_file) as file:
        end = path.stat().st_size
        while file.tell() < end:
            try:
                chunks.append(to_tensor(path, TensorUnpickler(file).load()))
            except BROKEN as error:
                reason = f"{type(error).__name__}: {error}"
                raise ValueError(f"{path} contains something other than tensors: {reason}") from error
    if not chunks:
        raise ValueError(f"{path} is empty; partition again")
    return chunks
