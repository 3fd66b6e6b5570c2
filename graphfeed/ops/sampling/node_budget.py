"""Draw nodes of each type by their connections to the nodes sampled before."""

from typing import Any

import torch

from graphfeed.ops.arguments import LARGEST, check_count, check_ids, check_seed, check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.structure.csc import check_columns


class NodeBudget:
    """The candidate nodes of HGSampling (from the heterogeneous graph transformer), with their scores.

    Each sampled node shares one point per edge type equally among its neighbours. The score of a node is the sum of its
    points. Nodes are drawn without replacement, in proportion to the squares of their scores, so nodes with many edges
    to sampled nodes are likely, and each node type has its own share.

    Args:
        first_ids: The first id of each node type, followed by the number of nodes, int64. A ValueError unless they
            begin at 0 and never decrease.

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
        """Share the points of sampled nodes among their neighbours. All arguments are int64.

        `neighbors` are the sources of the nodes' in-edges, in one run for each node and edge type. `offsets` are the
        starts of the runs, followed by the end of the last one.
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
        """Draw `wanted` candidates of each node type, or all if there are fewer; they count as sampled afterwards."""
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
        self.module.draw_hop(self.first_ids, numbers, key, self.known, self.module.BudgetDraws(*scratch), out, counts)
        return list(torch.split(out[: int(counts.sum())], counts.tolist()))

    def make_room(self, more: int) -> None:
        """Grow the table to hold `more` additional nodes."""
        old, count = self.known, int(self.known.count[0])
        if old.nodes.numel() < count + more:
            # Twice the required size, so that rehashing is rare.
            self.known = self.module.Known(
                *empty_table(2 * (count + more)), torch.zeros(1, dtype=torch.int64, device="cpu")
            )
            self.module.enter_again(old.nodes[:count], old.scores[:count], self.known)


def empty_table(size: int) -> tuple[torch.Tensor, ...]:
    """Return the keys and places of a hash table for `size` nodes, and uninitialized arrays of their ids and scores."""
    slots = 1 << max(6, (2 * size).bit_length())
    return (
        torch.full((slots,), -1, device="cpu"), torch.empty(slots, dtype=torch.int64, device="cpu"),
        torch.empty(size, dtype=torch.int64, device="cpu"), torch.empty(size, dtype=torch.int64, device="cpu"),
    )  # fmt: skip
