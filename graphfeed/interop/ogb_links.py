"""OGB's splits of edges for link prediction, such as `train.pt`. Only arrays are unpickled."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from graphfeed.ops.arguments import brief, check_ids, kind_of
from graphfeed.storage.datasets import HeteroItemSet, ItemSet
from graphfeed.storage.graph import ends_of
from graphfeed.storage.memory import ARRAY_SHELLS, Shell, read_tensors, shell_array

PARTS = ("train", "valid", "test")
WHOLE = "split_dict.pt"
"""Name of a file with all parts."""
RELATION_FEATURE = "edge_reltype"
"""Name of the edge feature with the relation's number."""

Columns: TypeAlias = dict[str, torch.Tensor]
Items: TypeAlias = ItemSet | HeteroItemSet


def splits_edges(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (WHOLE, *(f"{part}.pt" for part in PARTS)))


def read_links(folder: Path, sizes: Mapping[Any, int], relations: Mapping[int, str]) -> list[Items]:
    """Return the items of each part of a split of edges."""
    whole = folder / WHOLE
    together = read_link_columns(whole, read_tensors(whole, ARRAY_SHELLS)) if whole.is_file() else {}
    items = []
    for part in PARTS:
        path = whole if part in together else folder / f"{part}.pt"
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}; unpack the archive again")
        content = together[part] if part in together else read_tensors(path, ARRAY_SHELLS)
        try:
            items.append(as_items(read_link_columns(path, content), sizes, relations))
        except (IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not contain a valid split of edges: {error}") from error
    return items


def read_link_columns(path: Path, content: Any) -> dict[str, Any]:
    """Return the tensors and dicts of a dict by name. Lists of strings, such as the types of heads, are left out."""
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} must hold a dict of arrays, but holds {kind_of(content)}")
    try:
        columns = {
            name: torch.from_numpy(shell_array(value)) if isinstance(value, Shell) else value
            for name, value in content.items()
        }
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}; unpack the archive again") from error
    return {name: value for name, value in columns.items() if isinstance(value, (torch.Tensor, Mapping))}


def as_items(columns: Columns, sizes: Mapping[Any, int], relations: Mapping[int, str]) -> Items:
    if "edge" in columns:
        return as_pairs(dict(columns), sizes[None])
    if "source_node" in columns:
        return as_ranked_pairs(dict(columns), sizes[None])
    if "head" in columns:
        return as_triplets(dict(columns), sizes, relations)
    raise ValueError(f"it has {brief(list(columns))}, but neither edge, source_node nor head")


def as_pairs(columns: Columns, num_nodes: int) -> ItemSet:
    """Return edges; if there are negatives, these follow, and all have labels."""
    edges, wrong = columns.pop("edge"), columns.pop("edge_neg", None)
    check_pairs("edge", edges, num_nodes)
    if wrong is None:
        return with_others({"seeds": edges}, columns)
    check_pairs("edge_neg", wrong, num_nodes)
    labels = torch.zeros(len(edges) + len(wrong), device="cpu")
    labels[: len(edges)] = 1
    return ItemSet((torch.cat([edges, wrong]), labels), names=("seeds", "labels"))


def as_ranked_pairs(columns: Columns, num_nodes: int) -> ItemSet:
    edges = torch.stack([columns.pop("source_node"), columns.pop("target_node")], dim=1)
    check_pairs("edge", edges, num_nodes)
    wrong = columns.pop("target_node_neg", None)
    if wrong is None:
        return with_others({"seeds": edges}, columns)
    check_ids("target_node_neg", wrong, num_nodes)
    return with_others({"node_pairs": edges, "negative_dsts": wrong}, columns)


def as_triplets(columns: Columns, sizes: Mapping[Any, int], relations: Mapping[int, str]) -> Items:
    """Return the facts of a knowledge graph, by edge type if it has types."""
    edges = torch.stack([columns.pop("head"), columns.pop("tail")], dim=1)
    if None in sizes:
        check_pairs("head and tail", edges, sizes[None])
        return with_others({"seeds": edges}, columns)
    numbers = columns.pop("relation")
    by_type = {}
    for number in np.unique(numbers.numpy()).tolist():
        if number not in relations:
            raise ValueError(f"relation {number} has no edge type; the graph has {brief(sorted(relations))}")
        edge_type, chosen = relations[number], numbers == number
        for end, node_type in enumerate(ends_of(edge_type)):
            check_ids(f"{edge_type!r}: {('head', 'tail')[end]}", edges[chosen, end], sizes[node_type])
        by_type[edge_type] = with_others(
            {"seeds": edges[chosen]}, {name: values[chosen] for name, values in columns.items()}
        )
    return HeteroItemSet(by_type)


def with_others(named: Columns, others: Columns) -> ItemSet:
    # Other columns, such as years, become members without a name.
    names = (*named, *(None for _ in others))
    members = (*named.values(), *others.values())
    return ItemSet(members if len(members) > 1 else members[0], names=names if len(names) > 1 else names[0])


def check_pairs(name: str, pairs: torch.Tensor, num_nodes: int) -> None:
    if pairs.dim() != 2 or pairs.shape[1] != 2 or pairs.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"{name} must have two ids per edge, but has {pairs.dtype} values of {tuple(pairs.shape)}")
    check_ids(name, pairs, num_nodes)


def find_relations(features: Mapping[Any, Any]) -> dict[int, str]:
    """Return the edge type of each relation's number, as found in the edge feature `RELATION_FEATURE`."""
    relations: dict[int, str] = {}
    for (domain, edge_type, name), rows in features.items():
        if domain == "edge" and name == RELATION_FEATURE and edge_type is not None:
            relations |= dict.fromkeys(np.unique(rows).tolist(), edge_type)
    return relations
