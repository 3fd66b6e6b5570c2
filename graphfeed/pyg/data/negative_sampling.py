"""PyG's `NegativeSampling`, and what is more here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from graphfeed.datapipes import check_amount
from graphfeed.ops.arguments import brief, checked
from graphfeed.storage.graph import NegativeQuery, NodeWeights


@checked
@dataclass
class NegativeSampling:
    """How a link loader draws negatives. `torch_geometric.sampler.NegativeSampling` will do, too.

    Raises:
        ValueError: A mode that is neither "binary" nor "triplet", or an amount that is not above 0, or not whole for
            triplets.

    Example:
        >>> NegativeSampling("triplet", amount=2.0).amount
        2
    """

    mode: Any
    """"binary": pairs of random nodes, as many per edge as `amount`. "triplet": `amount` random destinations for the
    source of each edge."""
    amount: float = 1
    src_weight: torch.Tensor | None = None
    """How likely each source is drawn; None: all alike."""
    dst_weight: torch.Tensor | None = None
    """How likely each destination is drawn; None: all alike."""
    strict: bool = False
    """Whether an edge of the graph is never a negative, unlike in PyG."""

    def __post_init__(self) -> None:
        self.mode = getattr(self.mode, "value", self.mode)  # PyG's is an enumeration
        check_amount(self.mode, self.amount)
        if self.mode == "triplet":
            self.amount = math.ceil(self.amount)

    @classmethod
    def cast(cls, given: Any) -> "NegativeSampling | None":
        """Return what a user gives: None, a mode, a tuple or dict of arguments, or an object of this class or PyG's."""
        if given is None or isinstance(given, cls):
            return given
        if isinstance(given, str):
            return cls(given)
        if isinstance(given, (tuple, list)):
            return cls(*given)
        if isinstance(given, Mapping):
            return cls(**given)
        if hasattr(given, "mode") and hasattr(given, "amount"):
            return cls(given.mode, given.amount, given.src_weight, given.dst_weight)
        raise TypeError(
            f"neg_sampling must be 'binary', 'triplet', (mode, amount) or a NegativeSampling, but is {brief(given)}"
        )

    def is_binary(self) -> bool:
        """Tell whether both nodes of a negative are drawn."""
        return bool(self.mode == "binary")

    def is_triplet(self) -> bool:
        """Tell whether the source of each edge gets other destinations."""
        return bool(self.mode == "triplet")

    def query(self, time_name: str | None) -> NegativeQuery:
        """Return which pairs are negatives.

        Args:
            time_name: The node attribute of the graph with times, by which nodes exist; None: always.
        """
        source, destination = (
            None if part is None else NodeWeights(part) for part in (self.src_weight, self.dst_weight)
        )
        return NegativeQuery(source, destination, self.strict, time_name)
