"""Loaders for `torch_geometric.nn.Node2Vec` and `MetaPath2Vec`, which yield windows of random walks."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphfeed.datapipes import MiniBatch, Transform, WalkSampler
from graphfeed.ops import draw_key, drawing
from graphfeed.ops.arguments import as_ids, brief, check_count, checked
from graphfeed.ops.sampling import sample_negatives
from graphfeed.pyg.loaders.pyg_loader import PyGLoader, TorchOptions
from graphfeed.storage import HeteroItemSet, ItemSet, from_coo
from graphfeed.storage.graph import by_type_name, ends_of, etype_str_to_tuple, etype_tuple_to_str


class ToWindows(Transform, draws=True, seeded=False):
    """Turns walks into a pair of positive and negative windows, shape (windows, context_size), for PyG's models.

    The windows of all walks that begin at the first node come first. Negatives have the starts of the walks, followed
    by nodes drawn uniformly from those of the type of their column.
    """

    context_size: int
    num_negatives: int
    """Number of negative walks for each walk."""
    sizes: Sequence[int]
    """Number of nodes of the type of each column."""
    firsts: Sequence[int]
    """The number that is added to the ids of each column."""
    filler: int | None = None
    """Stands for the nodes after the end of a walk; None: the last node of the walk."""

    def __call__(self, minibatch: MiniBatch) -> Any:
        # All first walks of the seeds, then all second ones, and so on.
        walks = minibatch.walks.transpose(0, 1).flatten(0, 1)
        ended, firsts = walks < 0, torch.tensor(self.firsts, device="cpu")
        last = walks.gather(1, (~ended).sum(1, keepdim=True) - 1) if self.filler is None else self.filler
        positive = torch.where(ended, last, walks + firsts)
        starts, count = minibatch.walks[:, 0, 0], minibatch.walks.shape[1] * self.num_negatives
        columns = [starts.repeat(count)]
        with drawing(minibatch.key, self.number):
            for column, size in enumerate(self.sizes[1:], start=1):
                pairs = torch.stack([starts, starts], dim=1)
                drawn = sample_negatives(pairs, count, size, draw_key(column)) if count else pairs
                columns.append(drawn[len(starts) :, 1].view(len(starts), count).T.flatten())
        return self.windows(positive), self.windows(torch.stack(columns, dim=1) + firsts)

    def windows(self, walks: torch.Tensor) -> torch.Tensor:
        """Return all windows of walks, those at the first column first."""
        return walks.unfold(1, self.context_size, 1).transpose(0, 1).flatten(0, 1)


class Node2VecLoader(PyGLoader):
    """Yields positive and negative windows of walks, as the loader of `torch_geometric.nn.Node2Vec` does.

    A mini-batch is a pair for `model.loss(*pair)`. Walks follow the edges, and stay at a node without out-edges. Unlike
    PyG's, this loader needs no other package, takes any `p` and `q`, and gives the same walks for any workers.

    Args:
        edge_index: Sources and destinations, shape (2, E).
        walk_length: Number of nodes of a walk.
        context_size: Number of nodes of a window.
        walks_per_node: Number of walks from each node.
        p, q: Parameters of node2vec, as for `sample_walks`.
        num_negative_samples: Number of negative walks for each walk.
        num_nodes: Number of nodes; by default, the highest id plus 1.
        kwargs: As for `NodeLoader`.

    Raises:
        ValueError: `context_size` is not from 1 to `walk_length`, or another number is out of range.

    Example:
        >>> loader = Node2VecLoader(torch.tensor([[0, 1, 2], [1, 2, 0]]), walk_length=4, context_size=3, batch_size=1)
        >>> positive, negative = next(iter(loader))
        >>> positive
        tensor([[0, 1, 2],
                [1, 2, 0]])
    """

    @checked
    def __init__(
        self,
        edge_index: torch.Tensor,
        walk_length: int,
        context_size: int,
        walks_per_node: int = 1,
        p: float = 1.0,
        q: float = 1.0,
        num_negative_samples: int = 1,
        num_nodes: int | None = None,
        **kwargs: Any,
    ) -> None:
        sources, destinations = as_ids("edge_index", edge_index)
        if num_nodes is None:
            num_nodes = int(edge_index.max()) + 1 if len(sources) else 0
        check_window(context_size, walk_length, num_negative_samples)
        options = TorchOptions.of(kwargs, type(self).__name__)
        # The columns of this graph are the sources, so that walks follow the edges.
        graph = from_coo((destinations, sources), num_nodes)
        pipe = options.source(ItemSet(num_nodes, names="seeds"))
        pipe = pipe.sample_walks(graph, walk_length - 1, per_seed=walks_per_node, p=p, q=q)
        sizes, firsts = [num_nodes] * walk_length, [0] * walk_length
        super().__init__(ToWindows(pipe, context_size, num_negative_samples, sizes, firsts), options)


class MetaPath2VecLoader(PyGLoader):
    """Yields positive and negative windows of walks, as the loader of `torch_geometric.nn.MetaPath2Vec` does.

    A mini-batch is a pair for `model.loss(*pair)`: the ids of the node types follow each other in the order of their
    names, and the model's dummy index stands for the nodes after the end of a walk.

    Args:
        edge_index_dict: Sources and destinations by edge type, each of shape (2, E).
        metapath: Edge types of the steps, repeated if there are fewer than steps.
        walk_length: Number of steps of a walk.
        num_nodes_dict: Number of nodes by type; by default, the highest id plus 1.
        context_size, walks_per_node, num_negative_samples, kwargs: As for `Node2VecLoader`.

    Raises:
        ValueError: Successive types of the metapath don't join, or a number is out of range.

    Example:
        >>> edges = {("a", "to", "b"): torch.tensor([[0, 1], [1, 0]]), ("b", "to", "a"): torch.tensor([[0], [1]])}
        >>> loader = MetaPath2VecLoader(edges, list(edges), walk_length=2, context_size=3, batch_size=2)
        >>> next(iter(loader))[0]  # nodes 0 and 1 are "a", 2 and 3 are "b", and 4 is the dummy
        tensor([[0, 3, 4],
                [1, 2, 1]])
    """

    @checked
    def __init__(
        self,
        edge_index_dict: Mapping[Any, torch.Tensor],
        metapath: Sequence[Any],
        walk_length: int,
        context_size: int,
        walks_per_node: int = 1,
        num_negative_samples: int = 1,
        num_nodes_dict: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> None:
        check_window(context_size, walk_length + 1, num_negative_samples)
        given = {name: as_ids(f"edge_index of {name}", ends) for name, ends in by_type_name(edge_index_dict).items()}
        if not metapath:
            raise ValueError(f"metapath must have at least one edge type, but is {brief(metapath)}")
        sizes = dict(num_nodes_dict or {})
        for name, ends in given.items():
            for node_type, ids in zip(ends_of(name), ends, strict=True):
                if num_nodes_dict is None:
                    sizes[node_type] = max(sizes.get(node_type, 0), int(ids.max()) + 1 if len(ids) else 0)
        options = TorchOptions.of(kwargs, type(self).__name__)
        graph = from_coo({name: tuple(ends) for name, ends in given.items()}, sizes).reversed()
        # The reversed graph has the types in the other direction.
        etypes = [etype_tuple_to_str(etype_str_to_tuple(name)[::-1]) for name in metapath]
        start = ends_of(etypes[0])[1]
        pipe = options.source(HeteroItemSet({start: ItemSet(sizes[start], names="seeds")}))
        walking = WalkSampler(pipe, graph, walk_length, walks_per_node, etypes=etypes)
        columns: Any = walking.request.node_types
        used = sorted({node_type for name in etypes for node_type in ends_of(name)})
        firsts = {name: sum(sizes[other] for other in used[:place]) for place, name in enumerate(used)}
        counts, offsets = [sizes[name] for name in columns], [firsts[name] for name in columns]
        total = sum(sizes[name] for name in used)
        super().__init__(ToWindows(walking, context_size, num_negative_samples, counts, offsets, total), options)


def check_window(context_size: int, length: int, num_negatives: int) -> None:
    check_count("context_size", context_size, 1, length)
    check_count("num_negative_samples", num_negatives, 0)
