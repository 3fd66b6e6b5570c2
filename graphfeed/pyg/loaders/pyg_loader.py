"""What PyG's loaders share here."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar

import torch

from graphfeed.datapipes import Datapipe
from graphfeed.datapipes.pipeline import Placement, find
from graphfeed.loader import DataLoader, make_plan
from graphfeed.pyg.data.data_features import DataFeatures, contents_of, read_features
from graphfeed.pyg.loaders.torch_options import TorchOptions
from graphfeed.pyg.stages.fill_data import FillData, fetch_and_fill, fill_anew
from graphfeed.pyg.stages.ordered_item_sampler import TakesItems
from graphfeed.pyg.stages.sampler_output import call_stages, transform_output

PLACEMENTS = {None: Placement.AUTO, True: Placement.WORKER, False: Placement.MAIN}
"""Where features are fetched, by PyG's `filter_per_worker`."""


class PyGLoader(DataLoader[Any]):
    """A `graphfeed.DataLoader` that made its pipeline itself.

    `pipeline` is that pipeline, and `explain()` shows what of it runs where. `loader(positions)` makes the mini-batch
    of some seeds. The mini-batches of an epoch hold the attributes that `data` have when it begins.

    Raises:
        ImportError: PyG is not installed.
        TypeError: An argument that there is not.
        ValueError: Arguments that don't fit the data or each other, or no seeds.
    """

    is_subgraph: ClassVar[bool] = False
    """Whether a mini-batch is PyG's `subgraph` of the data rather than what a loader of PyG's makes of them."""
    transform: Callable[[Any], Any] | None = None
    transform_sampler_output: Callable[[Any], Any] | None = None
    filter_per_worker: bool | None = None

    def __init__(
        self, datapipe: Datapipe, options: TorchOptions | None = None, data: Any = None, **kwargs: Any
    ) -> None:
        """Make a loader.

        Args:
            datapipe: All stages but those that the options put behind them.
            options: The arguments of torch's `DataLoader`.
            data: The data whose attributes mini-batches hold; None: they hold those of no data that may change.
            kwargs: The arguments of `graphfeed.DataLoader`, in place of those that the options stand for.
        """
        if options is not None:
            datapipe, kwargs = options.end(datapipe), {**options.loader(), **kwargs}
        super().__init__(datapipe, **kwargs)
        self.data: Any = data
        self._contents: dict[Any, Any] | None = None if data is None else contents_of(data)

    def _fill(self, pipe: Datapipe, features: DataFeatures, as_edge_index: bool = False) -> Datapipe:
        """Return a pipeline that gives PyG's data, for one that samples, by the arguments that all loaders have."""
        if self.transform_sampler_output is not None:
            pipe = pipe.transform(partial(transform_output, self.transform_sampler_output))
        runs_in = PLACEMENTS[self.filter_per_worker]
        return fetch_and_fill(pipe, features, runs_in, self.transform, self.is_subgraph, as_edge_index)

    def __iter__(self) -> Iterator[Any]:
        self._read_changes()
        return super().__iter__()

    def _read_changes(self) -> None:
        """Plan again if `data` got other attributes, as PyG's loaders would give them."""
        if self._contents is None or (now := contents_of(self.data)) == self._contents:
            return
        self.plan = make_plan(fill_anew(self.pipeline, self._read_features()), self._options)
        self._contents = now
        # It was computed from the plan before.
        self.__dict__.pop("_fingerprint", None)

    def _read_features(self) -> DataFeatures:
        filling: Any = next(iter(find(self.pipeline, FillData)))
        return read_features(self.data, type(filling.features.template))  # the class counts only for a pair of stores

    @property
    def pipeline(self) -> Datapipe:
        """The stages that make the mini-batches."""
        return self.plan.written

    @property
    def dataset(self) -> range:
        """The positions of the seeds."""
        return range(len(self._source.item_set))

    @property
    def batch_size(self) -> int | None:
        """The number of seeds of a mini-batch; None if a `batch_sampler` says which come together, as in torch."""
        size: int | None = getattr(self._source, "size", self._source.batch_size)
        return size

    @property
    def drop_last(self) -> bool:
        """Whether the last mini-batch is dropped if it is not full."""
        return bool(self._source.drop_last)

    @property
    def _source(self) -> Any:
        return next(iter(find(self.pipeline, TakesItems)))

    def enable_multithreading(self, worker_threads: int | None = None) -> AbstractContextManager[None]:
        """Return a context that does nothing: workers are threads, and use the cores that there are."""
        del worker_threads
        return nullcontext()

    def enable_cpu_affinity(self, loader_cores: Any = None) -> AbstractContextManager[None]:
        """Return a context that does nothing: the operating system chooses the cores of threads."""
        del loader_cores
        return nullcontext()

    def __repr__(self) -> str:
        # As PyG does; `explain()` says what the loader does.
        return f"{type(self).__name__}()"

    def __call__(self, index: Any) -> Any:
        """Return the mini-batch of the seeds at some positions; it is not one of an epoch, so its draws are random."""
        self._read_changes()
        positions = index if isinstance(index, torch.Tensor) else torch.as_tensor(index, dtype=torch.int64)
        minibatch = self._source.minibatch_of(positions, 0)
        minibatch.key = None  # so that each stage draws a random one
        return call_stages(self.pipeline, minibatch)
