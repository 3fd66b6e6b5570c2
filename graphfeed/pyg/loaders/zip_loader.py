"""PyG's loader that zips several loaders."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from graphfeed.datapipes import Datapipe, FeatureFetcher, MiniBatch, Transform, length, traverse
from graphfeed.ops.arguments import brief, checked
from graphfeed.pyg.loaders.pyg_loader import PLACEMENTS, InitWorker, PyGLoader, TorchOptions
from graphfeed.pyg.stages.ordered_item_sampler import ItemSource
from graphfeed.storage import HeteroItemSet, ItemSet


class ItemsAt(Transform, seeded=False):
    """Replaces seeds that are item positions by those items, so that pipelines share the order of an epoch."""

    item_set: ItemSet | HeteroItemSet
    minibatcher: Callable[[Any, Any], Any]
    """Builds a mini-batch from the rows and the names of the items."""

    def __call__(self, minibatch: MiniBatch) -> Any:
        return self.minibatcher(self.item_set[minibatch.seeds], self.item_set.names)


class ZipBatches(Datapipe[Any], one_to_one=True, seeded=False):
    """Yields tuples with one mini-batch of each pipeline, until the shortest pipeline ends.

    Raises:
        ValueError: There is no pipeline.
    """

    datapipes: tuple[Datapipe, ...]

    def __post_init__(self) -> None:
        if not self.datapipes:
            raise ValueError("datapipes is empty; give at least one pipeline")

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        # The shortest pipeline ends the epoch.
        return min(map(length, self.datapipes))


class ZipLoader(PyGLoader):
    """Yields tuples with one mini-batch of each of several loaders, as `torch_geometric.loader.ZipLoader` does.

    The mini-batches of a tuple have the seeds at the same positions; the loader with the fewest seeds limits them. As
    in PyG, the arguments given here set the batch size, the order and the workers, and those of the loaders have no
    effect. Each loader makes its own random draws, even if two of them are alike.

    Args:
        loaders: Loaders of `graphfeed.pyg` with seeds, such as `NeighborLoader`.
        filter_per_worker, kwargs: As for `NodeLoader`.

    Raises:
        ValueError: There are no loaders.
    """

    @checked
    def __init__(self, loaders: Sequence[Any], filter_per_worker: bool | None = None, **kwargs: Any) -> None:
        loaders = list(loaders)
        for loader in loaders:
            if not isinstance(loader, PyGLoader) or not isinstance(traverse(loader.pipeline)[0], ItemSource):
                raise TypeError(f"loaders must be of graphfeed.pyg, such as NeighborLoader, but one is {brief(loader)}")
        if not loaders:
            raise ValueError("loaders is empty; give at least one")
        options = TorchOptions.of(kwargs, type(self).__name__)
        count = min(len(loader.dataset) for loader in loaders)
        # One source for all of them, so that the order of an epoch is read once.
        source = options.source(ItemSet(count, names="seeds"))
        pipes = (with_source(loader.pipeline, source) for loader in loaders)
        if filter_per_worker is not None:

            def place(stage: Datapipe) -> Datapipe:
                fetches = isinstance(stage, FeatureFetcher)
                return stage.changed(runs_in=PLACEMENTS[filter_per_worker]) if fetches else stage

            pipes = (pipe.rewrite(place) for pipe in pipes)
        super().__init__(ZipBatches(tuple(pipes)), options)
        self.loaders, self.filter_per_worker = loaders, filter_per_worker

    def __repr__(self) -> str:
        return f"{type(self).__name__}(loaders={self.loaders})"

    def __call__(self, index: Any) -> tuple[Any, ...]:
        """Return the mini-batches of the seeds at the given positions. They belong to no epoch; draws are random."""
        return tuple(loader(index) for loader in self.loaders)


def with_source(pipe: Datapipe, source: Datapipe) -> Datapipe:
    """Return a pipeline that reads its items at the positions given by a source."""

    def swap(stage: Datapipe) -> Datapipe:
        if isinstance(stage, ItemSource):
            return ItemsAt(source, stage.item_set, stage.minibatcher)
        # The worker_init_fn of a loader has no effect here, as in PyG.
        return stage.datapipe if isinstance(stage, InitWorker) else stage

    return pipe.rewrite(swap)
