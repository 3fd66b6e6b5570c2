"""Original ids of nodes in the data source, by node id in the graph."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import as_ids, brief, check_ids
from graphfeed.storage.datasets.array_files import load_array
from graphfeed.storage.datasets.metadata import stay_inside


class OriginalIds:
    """Original ids of the nodes of a type: strings or integers, at the position of each node."""

    def __init__(self, values: NDArray[Any] | range, offsets: NDArray[Any] | None = None) -> None:
        # Strings are given as concatenated UTF-8 bytes, with the offset at which each begins and the end of the last
        # one. A range is for nodes without other ids.
        if isinstance(values, np.ndarray) and (
            values.ndim != 1 or values.dtype != (np.int64 if offsets is None else np.uint8)
        ):
            raise ValueError(f"the original ids must be integers or bytes, but are {values.dtype} {values.shape}")
        if offsets is not None and (offsets.ndim != 1 or offsets.dtype != np.int64 or len(offsets) == 0):
            raise ValueError(f"the offsets of ids must be int64, but are {offsets.dtype} of shape {offsets.shape}")
        self._values, self._offsets = values, offsets
        self._positions: dict[str | int, int] | None = None

    def __len__(self) -> int:
        return len(self._values) if self._offsets is None else len(self._offsets) - 1

    def __getitem__(self, nodes: Any) -> Any:
        """Return the original id of a node; for a tensor, a list or a slice of nodes, a list of their ids."""
        if isinstance(nodes, slice):
            return [self._get(node) for node in range(*nodes.indices(len(self)))]
        # Also NumPy's integers and 0-d tensors.
        if hasattr(nodes, "__index__") and not (isinstance(nodes, torch.Tensor) and nodes.dim()):
            node = nodes.__index__()
            if not -len(self) <= node < len(self):
                raise IndexError(f"there is no node {node}; there are {len(self)}")
            return self._get(node % len(self))
        ids = as_ids("nodes", nodes)
        check_ids("nodes", ids, len(self), IndexError)
        return [self._get(node) for node in ids.tolist()]

    def __iter__(self) -> Iterator[str | int]:
        return (self._get(node) for node in range(len(self)))

    def _get(self, node: int) -> str | int:
        if self._offsets is None:
            return int(self._values[node])
        start, stop = int(self._offsets[node]), int(self._offsets[node + 1])
        # The files may be damaged, and offsets are only checked when they are read.
        if not 0 <= start <= stop <= len(self._values):
            raise ValueError(f"the id of node {node} is at {start} to {stop} of {len(self._values)} bytes")
        return bytes(self._values[start:stop]).decode("utf-8")

    def find(self, ids: Iterable[str | int]) -> torch.Tensor:
        """Return the nodes that had these ids. A KeyError names an id that no node had, or that several had."""
        # Built at the first call, because a dict of all ids takes memory. A range needs none.
        if self._positions is None and not isinstance(self._values, range):
            self._positions = {}
            for node, one in enumerate(self):
                if self._positions.setdefault(one, node) != node:
                    # Ids may occur more than once: -1 stands for several nodes.
                    self._positions[one] = -1
        found = []
        # Values of an Arrow column are Arrow scalars, which are not keys of the dict.
        for one in ids.to_pylist() if hasattr(ids, "to_pylist") else ids:
            if self._positions is not None:
                position = self._positions.get(one)
            else:
                position = int(one) if isinstance(one, (int, np.integer)) and 0 <= one < len(self) else None
            if position is None or position < 0:
                raise KeyError(f"{'no node' if position is None else 'several nodes'} had the id {brief(one)}")
            found.append(position)
        return torch.tensor(found, dtype=torch.int64, device="cpu")

    def __repr__(self) -> str:
        return f"OriginalIds({len(self)} {'integers' if self._offsets is None else 'strings'})"


def read_ids(folder: Path, files: Any, key: str, in_memory: bool) -> OriginalIds:
    """Read or map the original ids of a type."""
    if not isinstance(files, Mapping) or not {"values"} <= set(files) <= {"values", "offsets"}:
        raise ValueError(f"{key} must name the files `values` and `offsets`, but is {brief(files)}")

    def read(name: str) -> NDArray[Any] | None:
        if name not in files:
            return None
        path = stay_inside(folder, str(files[name]), f"{key}.{name}")
        return load_array(path, f"{key}.{name}", mapped=not in_memory)

    values = read("values")
    assert values is not None
    return OriginalIds(values, read("offsets"))
