"""Seeds drawn so that all classes are equally frequent."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Sampler

from graphfeed.ops.arguments import as_tensor, brief, check_ids, checked

BITS = 1 << 62
"""Number of values of a random integer: so large that its remainder is practically uniform."""


class ImbalancedSampler(Sampler[int]):
    """Draws positions with replacement, so that all classes are equally likely: each weight is 1 / size of the class.

    Use it like `torch_geometric.loader.ImbalancedSampler`: `NeighborLoader(..., sampler=sampler)`. In this package's
    loaders, its draws depend only on the random seed and the epoch; in torch's, they come from torch's default
    generator. It draws a class and then one of its members, both as integers, so the number of items has no limit.

    A mini-batch may contain a seed several times. The copies get the same neighbours, except if the loader has
    `disjoint=True` or times: then each copy has a separately sampled tree.

    Args:
        dataset: The labels, integers starting at 0; or a `Data` with a label in `y` for each node; or a data set or
            list of `Data` with one label each.
        input_nodes: The seeds of the loader, ids or a mask; None: all nodes. Has no effect on graphs of a data set.
        num_samples: Number of positions per epoch; None: the number of labels.

    Raises:
        ValueError: A label is negative, there are no labels, or more or fewer than nodes, or `input_nodes` are neither
            a mask nor ids of these nodes.

    Example:
        >>> positions = list(ImbalancedSampler(torch.tensor([0, 0, 0, 0, 1]), num_samples=1000))
        >>> 400 < positions.count(4) < 600
        True
    """

    nodes: torch.Tensor | None = None
    """The seeds whose positions are drawn; None: all nodes."""

    @checked
    def __init__(self, dataset: Any, input_nodes: Any = None, num_samples: int | None = None) -> None:
        labels = read_labels(dataset)
        if input_nodes is not None and (isinstance(dataset, torch.Tensor) or hasattr(dataset, "node_stores")):
            self.nodes = seed_nodes(input_nodes, len(labels))
            labels = labels[self.nodes]
        if labels.dtype.is_floating_point or labels.dtype.is_complex:
            raise TypeError(
                f"labels must be integers, one class each, but are {labels.dtype}; convert them with .long()"
            )
        if len(labels) == 0:
            raise ValueError("there are no labels to draw from; give at least one")
        labels = labels.long()
        if int(labels.min()) < 0:
            raise ValueError(f"a label is {int(labels.min())}, but classes count from 0; leave those nodes out")
        count = len(labels) if num_samples is None else num_samples
        if type(count) is not int or count < 1:
            raise ValueError(f"num_samples must be an integer of 1 or more, but is {brief(num_samples)}")
        self.num_samples, self.num_labels = count, len(labels)
        self._members = torch.argsort(labels, stable=True)
        sizes = labels.bincount()  # classes without members are never drawn
        self._starts, self._sizes = (part[sizes > 0] for part in (sizes.cumsum(0) - sizes, sizes))

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        classes = torch.randint(BITS, (self.num_samples,), device="cpu") % len(self._sizes)
        within = torch.randint(BITS, (self.num_samples,), device="cpu") % self._sizes[classes]
        positions: list[int] = self._members[self._starts[classes] + within].tolist()
        return iter(positions)


def seed_nodes(given: Any, count: int) -> torch.Tensor:
    """Return seeds as ids, or raise a ValueError if they are not ids or a mask of `count` nodes."""
    nodes = as_tensor("input_nodes of ImbalancedSampler", given).cpu()
    if nodes.dtype == torch.bool and nodes.shape == (count,):
        return nodes.nonzero().squeeze(1)
    if nodes.dim() != 1 or nodes.is_floating_point() or nodes.dtype == torch.bool:
        raise ValueError(
            f"input_nodes of ImbalancedSampler must be ids, shape (N,), or a mask of {count} labels, but is "
            f"{brief(given)}; give the input_nodes of the loader"
        )
    check_ids("input_nodes of ImbalancedSampler (one label each)", nodes, count)
    return nodes.long()


def read_labels(dataset: Any) -> torch.Tensor:
    """Return the label of each node or graph, in one dimension."""
    of_nodes = hasattr(dataset, "node_stores")
    given = dataset if isinstance(dataset, torch.Tensor) else getattr(dataset, "y", None)
    if given is None and not of_nodes and hasattr(dataset, "__iter__"):
        parts = [getattr(data, "y", None) for data in dataset]
        given = (
            torch.cat([torch.as_tensor(part, device="cpu").view(-1) for part in parts]) if None not in parts else None
        )
    if given is None:
        raise TypeError(
            f"dataset must be labels, a Data with y, or graphs with y, but is {brief(dataset)}; for a type of a "
            "HeteroData give its labels, data['paper'].y"
        )
    labels = torch.as_tensor(given, device="cpu").detach().view(-1)
    count = len(labels) if dataset is given else int(dataset.num_nodes if of_nodes else len(dataset))
    if len(labels) != count:
        what = "nodes" if of_nodes else "graphs"
        raise ValueError(f"there are {count} {what}, but {len(labels)} labels; give one label each")
    return labels
