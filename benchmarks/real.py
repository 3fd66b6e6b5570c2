"""Real graphs beside generated ones: WordNet, which the package contains, and those of a folder of yours.

The environment variable GRAPHFEED_DATA names the folder, with an archive `NAME/NAME.npz` for each graph. A graph with
features has `num_nodes`, `src` and `dst`, both directions of each edge, and 0/1 features in CSR form: `feat_indptr`,
`feat_indices` and `feat_shape`. One of interactions has `src`, `dst`, `timestamp`, `num_nodes_user` and
`num_nodes_page`. Without the folder, the graphs are left out, and reports say so.
"""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import graphfeed as gf

DATA = "GRAPHFEED_DATA"
WITH_FEATURES = ("coauthor_physics", "musae_github")
IN_TIME = "wikipedia_temporal"


def load_arrays(name: str) -> dict[str, Tensor] | str:
    """Return the arrays of a graph, or the reason why it is left out."""
    folder = os.environ.get(DATA)
    if not folder:
        return f"{name} is left out: {DATA} does not name a folder with it\n"
    path = Path(folder) / name / f"{name}.npz"
    if not path.is_file():
        return f"{name} is left out: the folder of {DATA} has no {name}/{name}.npz\n"
    with np.load(path, allow_pickle=False) as archive:
        return {key: torch.from_numpy(archive[key].astype(np.int64)) for key in archive}


def csc(arrays: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return `indptr` and `indices` of a graph without types."""
    graph = gf.from_coo((arrays["src"], arrays["dst"]), int(arrays["num_nodes"]))
    return graph.csc_indptr.long(), graph.indices.long()


def rows(arrays: dict[str, Tensor]) -> Tensor:
    """Return the features as one row of uint8 per node."""
    dense = torch.zeros(*arrays["feat_shape"].tolist(), dtype=torch.uint8)
    nodes = torch.arange(len(dense)).repeat_interleave(arrays["feat_indptr"].diff())
    dense[nodes, arrays["feat_indices"]] = 1
    return dense
