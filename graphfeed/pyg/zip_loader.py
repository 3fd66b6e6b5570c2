"""PyG's `ZipLoader`: the mini-batches of several loaders at a time."""

from collections.abc import Sequence
from typing import Any

import torch

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.datapipes.feature_fetcher import FeatureFetcher
from graphfeed.datapipes.item_sampler import ItemSampler
from graphfeed.datapipes.pipeline.traverse import find
from graphfeed.ops.arguments import brief
from graphfeed.pyg.init_worker import InitWorker
from graphfeed.pyg.ordered_item_sampler import TakesItems
from graphfeed.pyg.pyg_loader import PLACEMENTS, PyGLoader
from graphfeed.pyg.torch_options import TorchOptions
from graphfeed.pyg.zip_batches import ZipBatches
from graphfeed.storage import HeteroItemSet, ItemSet


class ZipLoader(PyGLoader):
    """Gives a tuple of one mini-batch of each of several loaders, as `torch_geometric.loader.ZipLoader` does.

    All of them are of the seeds at the same positions, of which there are as many as the loader with the fewest seeds
    has. How many come together, in which order and with which workers, the arguments here say, as in PyG: those of the
    loaders have no effect. Each loader draws by itself, also where two of them are alike.

    Args:
        loaders: Loaders of this package's `graphfeed.pyg` that take seeds, such as `NeighborLoader`.
        filter_per_worker: Whether workers fetch features (True) or the main process does; None: where it is faster.
        kwargs: The arguments of torch's `DataLoader`, and some of `graphfeed.DataLoader`; see `NodeLoader`. A `sampler`
            is read once for each loader, so it must draw from the global generators, or give the same again.

    Raises:
        TypeError: Something else than such loaders, or an argument that there is not.
        ValueError: There are no loaders.
    """

    def __init__(self, loaders: Sequence[Any], filter_per_worker: bool | None = None, **kwargs: Any) -> None:
        loaders = list(loaders)
        for loader in loaders:
            if not isinstance(loader, PyGLoader) or not find(loader.pipeline, TakesItems):
                raise TypeError(f"loaders must be of graphfeed.pyg, such as NeighborLoader, but one is {brief(loader)}")
        if not loaders:
            raise ValueError("loaders is empty; give at least one")
        options = TorchOptions.of(kwargs, type(self).__name__)
        count = min(len(items_of(loader.pipeline)) for loader in loaders)
        pipes = (with_source(loader.pipeline, options, count) for loader in loaders)
        if filter_per_worker is not None:
            runs_in = PLACEMENTS[filter_per_worker]
            pipes = (pipe.rewrite(lambda stage: place_fetch(stage, runs_in)) for pipe in pipes)
        super().__init__(options.end(ZipBatches(tuple(pipes))), **options.loader())
        self.loaders, self.filter_per_worker = loaders, filter_per_worker

    def __call__(self, index: Any) -> tuple[Any, ...]:
        """Return the mini-batches of the seeds at some positions; they are not of an epoch, so draws are random."""
        places = index if isinstance(index, torch.Tensor) else torch.as_tensor(index, dtype=torch.int64)
        return tuple(loader(places) for loader in self.loaders)


def items_of(pipe: Datapipe) -> Any:
    """Return the seeds of a pipeline."""
    source: Any = find(pipe, TakesItems)[0]
    return source.item_set


def with_source(pipe: Datapipe, options: TorchOptions, count: int) -> Datapipe:
    """Return a pipeline that takes the first seeds of another one as the options say."""
    given: Any = find(pipe, TakesItems)[0]
    source = options.source(first_items(given.item_set, count))
    if given.minibatcher is not ItemSampler.minibatcher:
        source = source.rewrite(
            lambda stage: stage.changed(minibatcher=given.minibatcher) if isinstance(stage, TakesItems) else stage
        )

    def swap(stage: Datapipe) -> Datapipe:
        if stage is given:
            return source
        return stage.datapipe if isinstance(stage, InitWorker) else stage

    return pipe.rewrite(swap)


def first_items(items: ItemSet | HeteroItemSet, count: int) -> ItemSet | HeteroItemSet:
    """Return the first items of an item set."""
    if len(items) == count:
        return items
    rows = items[:count]
    if isinstance(items, ItemSet):
        return ItemSet(rows, names=items.names)
    return HeteroItemSet({kind: ItemSet(own, names=items.names) for kind, own in rows.items()})


def place_fetch(stage: Datapipe, runs_in: Any) -> Datapipe:
    """Return a stage; one that fetches features runs where it is said."""
    return stage.changed(runs_in=runs_in) if isinstance(stage, FeatureFetcher) else stage
