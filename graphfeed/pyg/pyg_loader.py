"""What PyG's loaders share here."""

from collections.abc import Callable
from typing import Any

import torch

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.pipeline.placement import Placement
from graphfeed.datapipes.pipeline.traverse import find
from graphfeed.loader import DataLoader
from graphfeed.pyg.call_stages import call_stages
from graphfeed.pyg.ordered_item_sampler import TakesItems

PLACEMENTS = {None: Placement.AUTO, True: Placement.WORKER, False: Placement.MAIN}
"""Where features are fetched, by PyG's `filter_per_worker`."""


class PyGLoader(DataLoader):
    """A `graphfeed.DataLoader` that made its pipeline itself.

    `pipeline` is that pipeline, and `explain()` shows what of it runs where. `loader(positions)` makes the mini-batch
    of some seeds.
    """

    data: Any
    transform: Callable[[Any], Any] | None

    @property
    def pipeline(self) -> Datapipe:
        """The stages that make the mini-batches."""
        return self.plan.written

    def __call__(self, index: Any) -> Any:
        """Return the mini-batch of the seeds at some positions; it is not one of an epoch, so its draws are random."""
        places = index if isinstance(index, torch.Tensor) else torch.as_tensor(index, dtype=torch.int64)
        source: Any = next(iter(find(self.pipeline, TakesItems)))
        minibatch = source.minibatch_of(places, 0)
        minibatch.key = None
        return call_stages(self.pipeline, minibatch)
