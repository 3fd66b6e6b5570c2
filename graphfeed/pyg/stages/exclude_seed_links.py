"""Removes the edges that are to be predicted from what was sampled around them."""

import copy
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from graphfeed.datapipes import Datapipe, Transform
from graphfeed.ops.arguments import brief
from graphfeed.pyg.data.data_graph import as_time_column
from graphfeed.pyg.data.store_data import EdgeType
from graphfeed.pyg.data.tables import tables_of
from graphfeed.pyg.stages.sampled_minibatch import SampledMiniBatch
from graphfeed.pyg.stages.to_sampler_output import ToSamplerOutput, edge_index_of, to_bidirectional
from graphfeed.storage import Feature, TorchBasedFeature


class Excluded(NamedTuple):
    """Edges of one type that are removed."""

    kind: EdgeType | None
    """The edge type; None if there are no types."""
    flipped: bool = False
    """Whether they lead from the second end of a seed to the first."""
    times: Feature | None = None
    """The time of each edge, if edges have times."""


class ExcludeSeedLinks(Transform):
    """Removes sampled edges that join the two ends of a seed, so that a model can't read what it is to predict.

    Parallel edges are removed too, and so is a negative that happens to be an edge. Where each seed has nodes of its
    own, an edge is removed in the tree of its own seed alone. Where edges have times, those before the time of the seed
    stay: they are known by then. The nodes stay, and `num_sampled_edges` counts the edges that are left.
    """

    kind: EdgeType | None
    """The type of the seeds; None if there are no types."""
    excluded: tuple[Excluded, ...]
    bidirectional: bool = False
    """Whether the reverse of each edge that is left is added, and those among them that join the ends are removed."""

    same_size = True

    def __call__(self, minibatch: SampledMiniBatch) -> SampledMiniBatch:
        """Return the mini-batch without those edges."""
        result = copy.copy(minibatch)
        result.output = self.removed(minibatch.output)
        if self.bidirectional:
            result.output = self.removed(to_bidirectional(result.output))
        return result

    def removed(self, output: Any) -> Any:
        """Return a sampler's output without those edges."""
        seeds = Pairs.of(output, self.kind)
        for excluded in self.excluded:
            output = exclude(output, seeds, excluded)
        return output


def read_exclusion(given: Any, data: Any, kind: EdgeType | None, time_name: str | None) -> tuple[Excluded, ...]:
    """Return which edges are removed.

    Args:
        given: False; True; "reverse"; or the edge type of the reverse edges.
        data: The data, or a pair of stores.
        kind: The type of the seeds; None if there are no types.
        time_name: The name of the edges' times; None if they have none.

    Raises:
        ValueError: Something else is given, or a type that does not join the same node types the other way around.
    """
    tables = tables_of(data)
    if given is None or given is False:
        return ()
    wanted = [Excluded(kind)]
    if isinstance(given, str) and given == "reverse" and (kind is None or kind[0] == kind[2]):
        wanted.append(Excluded(kind, flipped=True))
    elif kind is not None and isinstance(given, (tuple, list)):
        reverse = tables.edge_type(given)
        if reverse is None or (reverse[0], reverse[2]) != (kind[2], kind[0]):
            raise ValueError(
                f"exclude_seed_edges is {brief(given)}, which is no edge type from {kind[2]!r} to {kind[0]!r}; "
                f"data has {list(tables.edges)}"
            )
        wanted.append(Excluded(reverse, flipped=True))
    elif given is not True:
        hint = "" if kind is None else f" or, as the seeds are {kind}, the type of their reverse edges"
        raise ValueError(f"exclude_seed_edges must be True, 'reverse' or False,{hint} but is {brief(given)}")
    if time_name is None:
        return tuple(wanted)
    return tuple(
        own._replace(times=TorchBasedFeature(as_time_column(time_name, tables.edges[own.kind][time_name])[:, None]))
        if time_name in tables.edges[own.kind]
        else own
        for own in wanted
    )


def exclude_after(pipe: Datapipe, kind: EdgeType | None, excluded: tuple[Excluded, ...]) -> Datapipe:
    """Return a pipeline of a sampler's outputs with a stage behind it that removes edges.

    In a bidirectional subgraph, the reverse of a removed edge would tell of it, so edges are removed before that.
    """
    both = isinstance(pipe, ToSamplerOutput) and pipe.subgraph_type == "bidirectional"
    return ExcludeSeedLinks(pipe.changed(subgraph_type="directional") if both else pipe, kind, excluded, both)


class Pairs(NamedTuple):
    """The seeds of a mini-batch, negatives too."""

    ids: torch.Tensor
    """The ids of their two ends, shape (2, N)."""
    trees: torch.Tensor | None
    """The tree of each, if each seed has nodes of its own."""
    times: torch.Tensor | None

    @classmethod
    def of(cls, output: Any, kind: EdgeType | None) -> "Pairs":
        """Return what a sampler's output says of seeds that are edges."""
        if len(output.metadata) == 4:
            _, (sources, destinations), _, times = output.metadata
        else:
            _, source, positive, negative, times = output.metadata
            blocks = [positive, *negative.reshape(len(source), -1).T]
            destinations, sources = torch.cat(blocks), source.repeat(len(blocks))
            times = None if times is None else times.repeat(len(blocks))
        ends = (None, None) if kind is None else (kind[0], kind[2])
        nodes = [output.node if end is None else output.node[end] for end in ends]
        batch = output.batch if kind is None or output.batch is None else output.batch[kind[0]]
        return cls(
            torch.stack([nodes[0][sources], nodes[1][destinations]]), None if batch is None else batch[sources], times
        )


def exclude(output: Any, seeds: Pairs, excluded: Excluded) -> Any:
    """Return a sampler's output without the edges of one type that join the two ends of a seed."""
    kind = excluded.kind
    row, col, edge, counts = (
        values if kind is None or values is None else values.get(kind)
        for values in (output.row, output.col, output.edge, output.num_sampled_edges)
    )
    if row is None or len(row) == 0 or seeds.ids.shape[1] == 0:
        return output
    ends = (None, None) if kind is None else (kind[0], kind[2])
    nodes = [output.node if end is None else output.node[end] for end in ends]
    joined = torch.stack([nodes[0][row], nodes[1][col]])
    trees = None
    if seeds.trees is not None:
        trees = (output.batch if ends[0] is None else output.batch[ends[0]])[row]
    edge_times = None
    if excluded.times is not None and edge is not None:
        edge_times = excluded.times.read(edge).squeeze(1)
    gone = find(joined, trees, edge_times, seeds._replace(ids=seeds.ids.flip(0) if excluded.flipped else seeds.ids))
    kept = torch.ones(len(row), dtype=torch.bool)
    kept[gone] = False
    index = edge_index_of(row, col)[:, kept]
    own = {"row": index[0], "col": index[1], "edge": None if edge is None else edge[kept]}
    if counts is not None:
        own["num_sampled_edges"] = [int(part.sum()) for part in torch.split(kept, list(counts))]
    fields = {name: value for name, value in own.items() if getattr(output, name) is not None}
    if kind is not None:
        fields = {name: {**getattr(output, name), kind: value} for name, value in fields.items()}
    return replace(output, **fields)


def find(edges: torch.Tensor, trees: torch.Tensor | None, times: torch.Tensor | None, seeds: Pairs) -> torch.Tensor:
    """Return the positions of the edges that join the two ends of a seed, in its tree and not before its time.

    Args:
        edges: The ids of both ends, shape (2, E).
        trees: The tree of each edge; None if there are none.
        times: The time of each edge; None if they have none.
        seeds: The seeds, with their ends in the direction of the edges.
    """
    size = 1 + max(int(edges[1].max()), int(seeds.ids[1].max()))
    wanted, of_seeds = torch.unique(seeds.ids[0] * size + seeds.ids[1], return_inverse=True)
    names = edges[0] * size + edges[1]
    pairs = torch.searchsorted(wanted, names).clamp(max=len(wanted) - 1)
    found: torch.Tensor = (wanted[pairs] == names).nonzero().squeeze(1)
    if trees is None or seeds.trees is None:
        return found
    own = trees[found]
    found = found[torch.isin(own * len(wanted) + pairs[found], seeds.trees * len(wanted) + of_seeds)]
    if times is None or seeds.times is None:
        return found
    of_trees = seeds.times.new_zeros(int(seeds.trees.max()) + 1)
    of_trees[seeds.trees] = seeds.times  # all pairs of a tree have the time of its positive
    is_known = times[found] < of_trees[trees[found]]
    return found[~is_known]
