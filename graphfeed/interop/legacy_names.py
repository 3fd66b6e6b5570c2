"""The names that items had before there was `seeds`."""

from collections.abc import Mapping
from typing import Any

import torch

from graphfeed.datapipes.minibatcher import LEGACY_NAMES


def translate(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a batch under today's names.

    With negatives, `seeds` are the N pairs and then their N * k negatives, those of the first pair first; `labels`
    are ones and then zeros, `indexes` say which pair each seed belongs to. Labels or indexes given beside are
    overwritten. An end that has no negatives is the pair's own.

    Args:
        values: Members by name, each by type if the graph has types.

    Raises:
        ValueError: `seeds` under two names, negatives without `node_pairs`, or not of shape (N, k).
    """
    result = {name: value for name, value in values.items() if name not in LEGACY_NAMES}
    given = [name for name in ("seeds", "seed_nodes", "node_pairs") if name in values]
    if len(given) != 1:
        raise ValueError(
            f"items must have seeds under one name, but have {given}; "
            "negative_srcs and negative_dsts go with node_pairs"
        )
    seeds = values[given[0]]
    ends = [values.get(name) for name in ("negative_srcs", "negative_dsts")]
    if all(part is None for part in ends):
        return {"seeds": seeds, **result}
    if given != ["node_pairs"]:
        raise ValueError(f"negative_srcs and negative_dsts go with node_pairs, but there are {given[0]}")
    if isinstance(seeds, Mapping):
        made = {
            kind: with_negatives(own, *(None if part is None else part.get(kind) for part in ends))
            for kind, own in seeds.items()
        }
        columns: Any = [{kind: parts[place] for kind, parts in made.items()} for place in range(3)]
    else:
        columns = with_negatives(seeds, *ends)
    return {**result, "seeds": columns[0], "labels": columns[1], "indexes": columns[2]}


def with_negatives(
    pairs: torch.Tensor, sources: torch.Tensor | None, destinations: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return seeds, labels and indexes of some pairs and their negatives."""
    count = len(pairs)
    ends = {"negative_srcs": sources, "negative_dsts": destinations}
    for name, given in ends.items():
        if given is not None and (given.dim() != 2 or len(given) != count):
            raise ValueError(f"{name} must have shape ({count}, k), a row a pair, but has {tuple(given.shape)}")
    ratios = {given.shape[1] for given in ends.values() if given is not None}
    if len(ratios) > 1:
        raise ValueError(f"negative_srcs and negative_dsts must have one shape, but have {sorted(ratios)} columns")
    ratio = ratios.pop() if ratios else 0
    own = pairs.repeat_interleave(ratio, dim=0)
    negatives = [own[:, place] if given is None else given.reshape(-1) for place, given in enumerate(ends.values())]
    seeds = torch.cat([pairs, torch.stack(negatives, dim=1).to(pairs.dtype)])
    labels = torch.zeros(len(seeds))
    labels[:count] = 1
    queries = torch.arange(count)
    return seeds, labels, torch.cat([queries, queries.repeat_interleave(ratio)])
