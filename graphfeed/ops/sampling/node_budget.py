"""Draw nodes of each type by how well they are joined to those that were drawn before."""

from typing import Any

import torch

from graphfeed.ops.arguments import LARGEST, check_count, check_ids, check_seed, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.structure.csc import check_columns


class NodeBudget:
    """The candidate nodes of HGSampling (of the heterogeneous graph transformer), with their scores.

    Each node that was sampled shares a point for each edge type among its neighbours; what a node has of these points
    is its score. Nodes are drawn by the squares of their scores, each once. So each type has its share, and those nodes
    are likely that have many edges to the others.

    Args:
        first_ids: The first id of each node type, and the number of nodes, int64. What are no running sums is a
            ValueError.

    Example:
        >>> budget = NodeBudget(torch.tensor([0, 2, 5]))
        >>> budget.share(torch.tensor([0]), torch.tensor([0, 2]), torch.tensor([3, 4]))
        >>> budget.draw([1, 9], key=7)
        [tensor([], dtype=torch.int64), tensor([3, 4])]
    """

    def __init__(self, first_ids: torch.Tensor) -> None:
        check_columns("first_ids", first_ids)
        self.first_ids = first_ids.to(torch.int64).contiguous()
        self.module = kernels("sampling.node_budget", first_ids)
        self.known: Any = self.module.Known(*empty_table(0), torch.zeros(1, dtype=torch.int64, device="cpu"))

    def share(self, sampled: torch.Tensor, offsets: torch.Tensor, neighbors: torch.Tensor) -> None:
        """Let nodes that were sampled share their points among their neighbours; all arguments are int64.

        `neighbors` are the sources of the nodes' edges in runs, each of one node and one edge type; `offsets` say where
        each run begins, and where the last one ends.
        """
        for name, ids in (("sampled", sampled), ("neighbors", neighbors)):
            check_vector(name, ids, (torch.int64,))
        check_columns("offsets", offsets, neighbors.numel())
        for name, ids in (("sampled", sampled), ("neighbors", neighbors)):
            check_ids(name, ids, int(self.first_ids[-1]))
        self.make_room(sampled.numel() + neighbors.numel())
        self.module.enter_sampled(sampled.contiguous(), self.known)
        self.module.share_scores(offsets.to(torch.int64).contiguous(), neighbors.contiguous(), self.known)

    def draw(self, wanted: list[int], key: int) -> list[torch.Tensor]:
        """Draw, and return, so many nodes of each type that were met and not drawn yet, or all if there are fewer."""
        check_seed("key", key)
        for count in wanted:
            check_seed("wanted", count)
        if len(wanted) != self.first_ids.numel() - 1 or min(wanted, default=0) < 0:
            raise ValueError(f"wanted must hold {self.first_ids.numel() - 1} numbers of 0 or more, but is {wanted}")
        check_count("wanted", max(wanted, default=0), 0, LARGEST)
        numbers = torch.minimum(torch.tensor(wanted, dtype=torch.int64, device="cpu"), self.first_ids.diff())
        size, kinds = int(self.known.count[0]), len(wanted)
        scratch = (torch.empty(length, dtype=torch.int64, device="cpu") for length in (size, kinds + 1, size, size + 1))
        out, counts = (
            torch.empty(int(numbers.sum()), dtype=torch.int64, device="cpu"),
            torch.zeros(kinds, dtype=torch.int64, device="cpu"),
        )
        self.module.draw_hop(self.first_ids, numbers, key, self.known, self.module.Draws(*scratch), out, counts)
        return list(torch.split(out[: int(counts.sum())], counts.tolist()))

    def make_room(self, more: int) -> None:
        """Make room for some nodes more."""
        old, count = self.known, int(self.known.count[0])
        if old.nodes.numel() < count + more:
            # Twice what is needed, so that nodes are seldom entered again.
            self.known = self.module.Known(
                *empty_table(2 * (count + more)), torch.zeros(1, dtype=torch.int64, device="cpu")
            )
            self.module.enter_again(old.nodes[:count], old.scores[:count], self.known)


def empty_table(size: int) -> tuple[torch.Tensor, ...]:
    """Return the keys and places of a hash table for so many nodes, and room for their ids and scores."""
    slots = 1 << max(6, (2 * size).bit_length())
    return (
        torch.full((slots,), -1, device="cpu"), torch.empty(slots, dtype=torch.int64, device="cpu"),
        torch.empty(size, dtype=torch.int64, device="cpu"), torch.empty(size, dtype=torch.int64, device="cpu"),
    )  # fmt: skip
