"""How far an epoch is."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from graphfeed.datapipes import Datapipe
from graphfeed.datapipes.pipeline import find


@runtime_checkable
class ReadsOrder(Protocol):
    """A source that reads the order of an epoch from somewhere else, which may give another one the next time."""

    def digest_order(self) -> str:
        """Return a digest of the order of the epoch that the source was keyed for."""


@dataclass
class Progress:
    """How far an epoch is."""

    epoch: int
    index: int
    """The number of mini-batches yielded."""
    done: bool = False
    order: str | None = None
    """A digest of the order of the epoch, where a source reads it from somewhere else."""

    def note_order(self, pipe: Datapipe) -> None:
        """Take the digest of the order that the sources of an epoch have read.

        Raises:
            ValueError: The epoch goes on from a state, in which the order was another one.
        """
        digests = [source.digest_order() for source in find(pipe, ReadsOrder)]  # type: ignore[attr-defined]
        order = " ".join(digests) or None
        if self.index > 0 and self.order is not None and order != self.order:
            raise ValueError(
                f"the sampler gives another order of epoch {self.epoch} than the one in state_dict, so seeds would be "
                "lost and repeated; give its generator the state that it had before that epoch, or let the sampler "
                "draw from torch's global generator, or remove 'order' from the state to go on all the same"
            )
        self.order = order
