"""Events as PyG's `TemporalData`."""

import copy
from typing import Any

import torch

from graphfeed.datapipes import MiniBatch, Transform
from graphfeed.ops import draw_key, drawing


def gather_events(rows: Any, names: Any) -> MiniBatch:
    minibatch = MiniBatch()
    minibatch.events = dict(zip(names, rows, strict=True))  # type: ignore[attr-defined]
    return minibatch


class ToTemporalData(Transform):
    """Turns events into a PyG `TemporalData`, with negative destinations if asked for.

    What it draws depends on the mini-batch's key.
    """

    template: Any
    """A `TemporalData` that each one begins as, without what belongs to events."""
    ratio: float = 0.0
    """How many negative destinations there are for each event."""
    bounds: tuple[int, int] = (0, 0)
    """The first and the last id that a negative destination may be."""

    needs_key = True
    same_size = True

    def __call__(self, minibatch: MiniBatch) -> Any:
        events = copy.copy(self.template)
        for name, values in minibatch.events.items():
            events[name] = values
        ends = [events.src, events.dst]
        if self.ratio:
            with drawing(minibatch.key, self.number):
                generator = torch.Generator().manual_seed(draw_key(0))
            lowest, highest = self.bounds
            drawn = torch.randint(lowest, highest + 1, (round(self.ratio * len(events.dst)),), generator=generator)
            events.neg_dst = drawn.to(events.dst.dtype)
            ends.append(events.neg_dst)
        events.n_id = torch.unique(torch.cat(ends))
        return events
