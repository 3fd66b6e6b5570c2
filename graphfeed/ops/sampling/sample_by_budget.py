"""Sample nodes of each type by how well they are joined to those that were sampled before."""

from collections.abc import Sequence

import numpy as np
import torch

from graphfeed.ops import buffers
from graphfeed.ops.backend import as_kernel_args, kernels
from graphfeed.ops.checks import check_count, check_vector
from graphfeed.ops.sampling.typed_sample_hops import TypedGraph, check_seeds
from graphfeed.ops.structure.csc import ensure_joined


def sample_by_budget(
    graph: TypedGraph, seeds: Sequence[torch.Tensor], num_samples: Sequence[Sequence[int]], keys: Sequence[int]
) -> list[torch.Tensor]:
    """Return the seeds and nodes sampled around them, so many of each type in each hop (HGSampling).

    Each node that was sampled shares one point for each edge type among its neighbours that were not; that is their
    score. A hop draws nodes of each type one after the other, without replacement, with probabilities in proportion to
    the squares of their scores (Hu and others: Heterogeneous graph transformer, WWW 2020). So each type has its share,
    and those nodes are likely that have many edges to the others. If a node has more than 50 in-edges of a type, 50 of
    them are picked at random. The cost is that of a look at these edges of each node.

    Args:
        graph: The graph, on the CPU; its weights have no effect.
        seeds: Node ids inside their type, by node type, of the dtype of `indices`.
        num_samples: For each hop, the number of nodes of each node type.
        keys: The key of each hop (`Key.at`).

    Returns:
        Ids inside their type, int64, by node type: the seeds as they were given, then the nodes of each hop. No node is
        sampled twice.

    Raises:
        TypeError: A tensor has another dtype, or a number is no whole one.
        ValueError: A seed lies outside of its type, a number is negative, there is not one for each type or not a key
            for each hop, or the arrays are not those of a graph.
    """
    check_vector("first_ids", graph.first_ids, (torch.int64,))
    module = kernels("sampling.sample_by_budget", graph.indices, indptr=graph.indptr, types=graph.types)
    ensure_joined(graph.indptr, graph.indices, graph.types, graph.first_ids, graph.ends)
    check_seeds(graph, seeds)
    sizes = graph.first_ids.diff().tolist()
    if len(keys) != len(num_samples):
        raise ValueError(f"keys must hold {len(num_samples)} numbers, one per hop, but holds {len(keys)}")
    for hop, numbers in enumerate(num_samples):
        if len(numbers) != len(sizes):
            raise ValueError(f"num_samples[{hop}] must hold {len(sizes)} numbers, but holds {len(numbers)}")
        for number in numbers:
            check_count(f"num_samples[{hop}]", number, 0)
    wanted = np.array([list(map(min, numbers, sizes)) for numbers in num_samples], dtype=np.int64)
    wanted = wanted.reshape(len(num_samples), len(sizes))
    counts = np.zeros_like(wanted)
    stacked = torch.cat([part.long() + first for part, first in zip(seeds, graph.first_ids.tolist(), strict=False)])
    out = buffers.empty(int(wanted.sum()), torch.int64)
    arrays = as_kernel_args(out, graph.indptr.contiguous(), graph.indices.contiguous(), graph.types.contiguous())
    first_ids, given, drawn = as_kernel_args(out, graph.first_ids.contiguous(), stacked, out)
    module.sample_by_budget(arrays, first_ids, given, wanted, np.array(keys, dtype=np.uint64), drawn, counts)
    parts = torch.split(out[: counts.sum()], counts.ravel().tolist())
    return [
        torch.cat([seeds[kind].long(), *(part - first for part in parts[kind :: len(sizes)])])
        for kind, first in enumerate(graph.first_ids[:-1].tolist())
    ]
