"""Reads graphs in the layout of GraphLearn-for-PyTorch's partitioners, to write them as our own parts."""

import io
import os
import pickle
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch

from graphfeed.distributed.partition.halo import as_by_type
from graphfeed.distributed.pyg.partition_pyg_layout import read_file
from graphfeed.storage.datasets.array_files import check_file
from graphfeed.storage.datasets.torch_files import BROKEN
from graphfeed.storage.features.feature import TorchBasedFeature
from graphfeed.storage.features.feature_store import BasicFeatureStore
from graphfeed.storage.graph.build.from_coo import from_coo
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph
from graphfeed.storage.graph.sampled_subgraph import ByType

NODES, EDGES = "node_pb", "edge_pb"
FEAT = "feat"


class WholeGraph(NamedTuple):
    """A graph that was in parts, as `write_partition` takes it."""

    graph: FusedCSCSamplingGraph
    assignment: ByType
    """The part of each node."""
    num_parts: int
    features: BasicFeatureStore
    """The feature of nodes and of edges has the name "feat"."""


def read_graphlearn(root: str | os.PathLike[str]) -> WholeGraph:
    """Read all parts of a folder that a partitioner of GraphLearn-for-PyTorch wrote, into memory.

    GraphLearn's parts often hold the out-edges of their nodes; ours hold in-edges. So the parts are put together, and
    `write_partition` writes them anew with the same assignment. Edges are ordered by their ids, and weights are the
    edge attribute "weights". Types are in alphabetical order. Nothing but tensors is unpickled: the number of parts
    and the types are told by the names of files, rather than by the file `META`. Cached features are copies, so they
    are not read; `read_graphlearn_caches` tells which they are.

    Args:
        root: The folder with `node_pb`, `edge_pb` and `part0`.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file holds something other than tensors, or ids that don't fit.
    """
    root = Path(root)
    node_maps, edge_maps = read_books(root, NODES), read_books(root, EDGES)
    parts = part_folders(root)
    typed = None not in node_maps
    edges, weights = {}, {}
    for kind, owners in edge_maps.items():
        tensors = read_edges(parts, kind, len(owners))
        edges[kind] = (tensors["rows"], tensors["cols"])
        weights[kind] = tensors.get("weights")
    known = {kind: own for kind, own in weights.items() if own is not None}
    attributes: dict[str, Any] = {"weights": known} if len(known) == len(edges) else {}
    sizes = {kind: len(owners) for kind, owners in node_maps.items()}
    if typed:
        named = {as_edge_type(kind): own for kind, own in edges.items()}
        renamed = {name: {as_edge_type(kind): own for kind, own in by.items()} for name, by in attributes.items()}
        graph = from_coo(named, {str(kind): size for kind, size in sizes.items()}, edge_attributes=renamed)
    else:
        graph = from_coo(edges[None], sizes[None], edge_attributes={name: by[None] for name, by in attributes.items()})
    features: dict[tuple[str, str | None, str], TorchBasedFeature] = {}
    for domain, maps in (("node", node_maps), ("edge", edge_maps)):
        for kind, owners in maps.items():
            rows = read_feature(parts, f"{domain}_feat", kind, len(owners))
            if rows is not None:
                name = as_edge_type(kind) if domain == "edge" and kind is not None else kind
                features[domain, name, FEAT] = TorchBasedFeature(rows if rows.dim() > 1 else rows[:, None])
    assignment: Any = {str(kind): own for kind, own in node_maps.items()} if typed else node_maps[None]
    return WholeGraph(graph, assignment, len(parts), BasicFeatureStore(features))


def read_graphlearn_caches(root: str | os.PathLike[str]) -> list[ByType]:
    """Return of which nodes each part of a folder of GraphLearn-for-PyTorch's partitioners has cached features.

    `write_partition(halo_features=...)` stores copies of the same nodes' features with our parts. GraphLearn chooses
    them by how often nodes are met from the training seeds of a part. Cached features of edges are left out.

    Args:
        root: The folder, as in `read_graphlearn`.

    Returns:
        For each part, the nodes' ids, by node type if there are types; empty if nothing was cached.

    Raises:
        FileNotFoundError: A file is missing.
        ValueError: A file holds something other than tensors.
    """
    kinds = list(read_books(Path(root), NODES))
    caches = [{kind: read_cached(part, kind) for kind in kinds} for part in part_folders(Path(root))]
    return [as_by_type(by_type) for by_type in caches]


def read_cached(part: Path, kind: str | None) -> torch.Tensor:
    """Return the ids of the nodes of a type whose features a part caches."""
    path = part / "node_feat" / (kind or "") / "cache_ids.pt"
    return as_tensor(path, read_file(path)) if path.is_file() else torch.empty(0, dtype=torch.int64)


def part_folders(root: Path) -> list[Path]:
    """Return the folders of the parts."""
    num_parts = next(part for part in count() if not (root / f"part{part}").is_dir())
    if num_parts == 0:
        raise FileNotFoundError(f"there is no folder part0 in {root}; give the folder that holds META")
    return [root / f"part{part}" for part in range(num_parts)]


def as_edge_type(kind: str | None) -> str:
    """Return an edge type from the name of its file."""
    parts = str(kind).split("__")
    if len(parts) != 3:
        raise ValueError(f"{EDGES} has {kind!r}, which is no edge type; its name must be source__relation__destination")
    return ":".join(parts)


def read_books(root: Path, name: str) -> dict[str | None, torch.Tensor]:
    """Return the part of each node or edge, by the names of the types' files; without types, by None."""
    folder = root / name
    files: dict[str | None, Path] = {None: root / f"{name}.pt"}
    if folder.is_dir():
        files = {path.stem: path for path in sorted(folder.glob("*.pt"))}
    return {kind: as_tensor(path, read_file(path)).to(torch.int64) for kind, path in files.items()}


def as_tensor(path: Path, value: Any) -> torch.Tensor:
    """Return a value that was read, or raise if it is no tensor."""
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{path} must hold a tensor, but holds a {type(value).__name__}")
    return value


def read_edges(parts: list[Path], kind: str | None, size: int) -> dict[str, torch.Tensor]:
    """Return the ends and weights of the edges of a type, in the order of their ids."""
    folders = [part / "graph" / (kind or "") for part in parts]
    found: dict[str, torch.Tensor] = {}
    for name in ("eids", "rows", "cols", "weights"):
        paths = [folder / f"{name}.pt" for folder in folders if folder.is_dir()]
        if name != "weights" or (paths and all(path.is_file() for path in paths)):
            tensors = [as_tensor(path, read_file(path)) for path in paths]
            found[name] = torch.cat(tensors) if tensors else torch.empty(0, dtype=torch.int64)
    order = order_of(found.pop("eids"), size, f"edges of {kind!r}")
    return {name: values[order] for name, values in found.items()}


def order_of(ids: torch.Tensor, size: int, what: str) -> torch.Tensor:
    """Return the order in which ids ascend, or raise if they are not all below a size, once each."""
    order = ids.argsort()
    if not torch.equal(ids[order], torch.arange(size)):
        raise ValueError(f"the parts must have {size} {what}, each once; partition again")
    return order


def read_feature(parts: list[Path], group: str, kind: str | None, size: int) -> torch.Tensor | None:
    """Return the rows of a feature in the order of their ids; None if there are none."""
    folders = [part / group / (kind or "") for part in parts]
    with_rows = [folder for folder in folders if (folder / "feats.pkl").is_file()]
    if not with_rows:
        return None
    ids, rows = (
        torch.cat([chunk for folder in with_rows for chunk in read_chunks(folder / name)])
        for name in ("ids.pkl", "feats.pkl")
    )
    if len(ids) != len(rows):
        raise ValueError(f"{group} of {kind!r} has {len(rows)} rows for {len(ids)} ids; partition again")
    return rows[order_of(ids, size, f"rows of {group}")]


class TensorUnpickler(pickle.Unpickler):
    """Unpickles tensors alone.

    A file can reach no names but those by which tensors are made, here replaced by functions of our own, and storages
    are loaded with `weights_only=True`.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for one of the functions by which tensors are pickled."""
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return rebuild_tensor
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return load_storage
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is no part of a tensor")


def load_storage(content: bytes) -> Any:
    """Return the storage of a tensor, which lies in the pickle as a file of `torch.save`."""
    return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")


def rebuild_tensor(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> torch.Tensor:
    """Return a tensor from its storage, without gradients or hooks."""
    memory: torch.UntypedStorage = storage._untyped_storage  # without torch's warning that typed ones will go
    last = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    lowest = min([offset, *size, *stride], default=0)
    if lowest < 0 or (0 not in size and (last + 1) * storage.dtype.itemsize > memory.nbytes()):
        raise pickle.UnpicklingError(f"a tensor of shape {size} is larger than its storage")
    return torch.empty(0, dtype=storage.dtype).set_(memory, offset, size, stride)


def read_chunks(path: Path) -> list[torch.Tensor]:
    """Return the tensors that were pickled to a file one after the other."""
    check_file(path, "root")
    found: list[torch.Tensor] = []
    with path.open("rb") as file:
        end = path.stat().st_size
        while file.tell() < end:
            try:
                found.append(as_tensor(path, TensorUnpickler(file).load()))
            except BROKEN as error:
                raise ValueError(f"{path} holds something other than tensors: {error}") from error
    if not found:
        raise ValueError(f"{path} is empty; partition again")
    return found
