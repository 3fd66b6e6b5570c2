"""The base class of PyG's loaders, and the arguments of torch's `DataLoader` that they accept."""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import current_process, get_all_start_methods, parent_process
from multiprocessing.context import BaseContext
from typing import Any, ClassVar, Literal
from weakref import WeakSet

import torch
from torch.utils.data import WeightedRandomSampler

from graphfeed.datapipes import Datapipe, FanoutSampler, ItemSampler, Transform
from graphfeed.datapipes.pipeline import Observer, Placement, find, traverse
from graphfeed.loader import DataLoader, make_plan
from graphfeed.loader.stages import Pin
from graphfeed.ops.arguments import brief, checked, kind_of
from graphfeed.pyg.data.features_of_data import DataFeatures, contents_of, features_of_data
from graphfeed.pyg.data.store_data import StorePair
from graphfeed.pyg.data.tables import as_data, import_pyg
from graphfeed.pyg.stages.fill_data import FillData, fetch_and_fill, fill_anew
from graphfeed.pyg.stages.ordered_item_sampler import ItemSource, OrderedItemSampler
from graphfeed.pyg.stages.sampler_output import call_stages, transform_output
from graphfeed.storage import HeteroItemSet, ItemSet


class InitWorker(Transform, keeps_size=True, seeded=False):
    """Calls torch's `worker_init_fn` in each worker before its first mini-batch, and only in workers."""

    function: Callable[[int], Any]

    def __call__(self, minibatch: Any) -> Any:
        done = LOCAL.__dict__.setdefault("done", WeakSet())
        if self.function not in done:
            done.add(self.function)
            if parent_process() is not None:  # a worker process, whose name ends with its number
                self.function(int("".join(filter(str.isdigit, current_process().name)) or 0))
            elif threading.current_thread() is not threading.main_thread():
                # Threads are numbered in the order of their first mini-batches.
                self.function(next(NUMBERS))
        return minibatch


LOCAL = threading.local()
NUMBERS = itertools.count()


@checked
@dataclass(frozen=True, eq=False)
class TorchOptions:
    """The arguments of torch's `DataLoader`, and some of `graphfeed.DataLoader`. Any other is a TypeError."""

    batch_size: int | None = 1
    """Number of seeds per mini-batch."""
    shuffle: bool | None = False
    """Whether the order of the seeds changes in each epoch: a keyed permutation of all of them."""
    sampler: Iterable[int] | None = None
    """Yields the positions of the seeds, in the order of the epoch. It is read once per epoch, in the main process,
    with torch's, NumPy's and Python's generators seeded by the random seed and the epoch. To resume in the middle of an
    epoch, a sampler with its own generator needs the generator's state before that epoch; another order is an error."""
    batch_sampler: Iterable[Sequence[int]] | None = None
    """Like `sampler`, but yields the positions of each mini-batch."""
    num_workers: int | Literal["auto"] | None = 0
    """Number of workers: threads, or processes with `worker="process"`. It does not change the mini-batches."""
    collate_fn: Any = None
    """Has no effect, as in PyG."""
    dataset: Any = None
    """Has no effect, as in PyG."""
    pin_memory: bool = False
    """Whether mini-batches are copied to page-locked memory, if CUDA is available."""
    drop_last: bool = False
    """Whether an incomplete last mini-batch is dropped."""
    timeout: float = 0
    """Time limit in seconds for a worker to produce a mini-batch; 0 means 600, because no wait is unlimited here."""
    worker_init_fn: Callable[[int], Any] | None = None
    """Called with the number of a worker, in each worker, before its first mini-batch. It need not seed anything."""
    multiprocessing_context: str | BaseContext | None = None
    """Any value but None makes the workers processes. The loader decides how they start."""
    generator: torch.Generator | None = None
    """Generator that draws the random seed when the loader is constructed, unless `seed` is given."""
    prefetch_factor: int | None = None
    """Number of mini-batches in flight per worker; None means 2."""
    persistent_workers: bool = True
    """Whether workers are kept for the next epoch; unlike in torch, True is the default."""
    pin_memory_device: str = ""
    """Has no effect: memory is pinned for all devices."""
    in_order: bool = True
    """Has no effect: mini-batches come in order."""
    seed: int | None = field(default=None, kw_only=True)
    """The random seed of all draws; None draws one from `generator`, or else from torch's default generator."""
    worker: str | None = field(default=None, kw_only=True)
    """"thread" or "process"; see `graphfeed.DataLoader`, also for the arguments below."""
    executor: Executor | None = field(default=None, kw_only=True)
    observer: Observer | None = field(default=None, kw_only=True)
    window: int | None = field(default=None, kw_only=True)
    """Maximum number of mini-batches that are sampled together, or whose rows are read together; 0: none are."""

    def __post_init__(self) -> None:
        if self.sampler is not None and self.shuffle:
            raise ValueError("sampler sets the order, so shuffle can't be given with it; leave shuffle out")
        if self.batch_sampler is not None and (self.batch_size != 1 or self.shuffle or self.sampler or self.drop_last):
            raise ValueError(
                "batch_sampler sets the seeds of a mini-batch, so batch_size, shuffle, sampler and drop_last can't be "
                "given with it; leave them out"
            )
        methods = get_all_start_methods()
        if isinstance(self.multiprocessing_context, str) and self.multiprocessing_context not in methods:
            raise ValueError(
                f"multiprocessing_context must be one of {methods}, but is {brief(self.multiprocessing_context)}"
            )
        if self.batch_size is None:
            raise ValueError("batch_size must be a number, but is None; give 1 for one seed in each mini-batch")

    @classmethod
    def of(cls, given: dict[str, Any], owner: str) -> "TorchOptions":
        """Return the options for the keyword arguments of a loader, whose name is `owner`."""
        unknown = sorted(set(given) - set(cls.__dataclass_fields__))
        if unknown:
            raise TypeError(f"{owner} has no argument {unknown[0]!r}; see docs/from-pyg.md for the valid ones")
        return cls(**given)

    def source(self, items: ItemSet | HeteroItemSet) -> Datapipe:
        """Return the first stages of a pipeline."""
        assert self.batch_size is not None
        pipe: Datapipe
        if self.sampler is None and self.batch_sampler is None:
            pipe = ItemSampler(items, self.batch_size, drop_last=self.drop_last, shuffle=bool(self.shuffle))
        else:
            size = None if self.sampler is None else self.batch_size
            check_sampler_inputs(self.sampler, items)
            order = self.batch_sampler if self.sampler is None else self.sampler
            pipe = OrderedItemSampler(items, self.batch_size, drop_last=self.drop_last, order=order, size=size)
        return pipe if self.worker_init_fn is None else InitWorker(pipe, self.worker_init_fn)

    def end(self, pipe: Datapipe) -> Datapipe:
        """Append the last stages to a pipeline."""
        return Pin(pipe) if self.pin_memory and torch.cuda.is_available() else pipe

    def loader(self) -> dict[str, Any]:
        """Return the arguments of this package's loader."""
        worker = self.worker
        if worker is None:
            worker = "thread" if self.multiprocessing_context is None else "process"
        seed = self.seed
        if seed is None and self.generator is not None:
            seed = int(torch.randint(1 << 62, (), generator=self.generator, device=self.generator.device))
        return {
            "num_workers": self.num_workers,
            "persistent_workers": self.persistent_workers,
            "worker": worker,
            "executor": self.executor,
            "observer": self.observer,
            "window": self.window,
            "seed": seed,
            "prefetch_factor": 2 if self.prefetch_factor is None else self.prefetch_factor,
            "timeout": self.timeout or 600.0,
        }


def check_sampler_inputs(sampler: Any, items: ItemSet | HeteroItemSet) -> None:
    """Raise if a sampler draws by labels or weights that do not match the seeds."""
    # Either package's `ImbalancedSampler`; PyG's is a `WeightedRandomSampler`.
    known, nodes = getattr(sampler, "num_labels", None), getattr(sampler, "nodes", None)
    known = len(sampler.weights) if isinstance(sampler, WeightedRandomSampler) else known
    name = f"sampler is {kind_of(sampler)}"
    if known is not None and known != len(items):
        raise ValueError(f"{name} of {known} seeds, but the loader has {len(items)}; give both the same input_nodes")
    sets = [items] if isinstance(items, ItemSet) else list(items.by_type.values())
    seeds = sets[0].members[0]
    if nodes is not None and isinstance(seeds, torch.Tensor) and len(sets) == 1 and not torch.equal(seeds, nodes):
        raise ValueError(f"{name} of other seeds than the loader's; give both the same input_nodes, in the same order")


def read_options(loader: str, data: Any, custom_cls: Any, kwargs: dict[str, Any]) -> TorchOptions:
    import_pyg("torch_geometric.data", loader)
    if custom_cls is not None and not isinstance(as_data(data), StorePair):
        raise ValueError(f"custom_cls must be None, but is {brief(custom_cls)}: mini-batches are of data's class")
    return TorchOptions.of(kwargs, loader)


def weights_of(sampler: Any) -> tuple[str, ...]:
    """Return the name of the weights by which a sampler of this package draws edges, or an empty tuple."""
    name = getattr(getattr(sampler, "neighborhoods", None), "weight", None)
    return () if name is None else (name,)


@checked
@dataclass(frozen=True, eq=False)
class ExtraOptions:
    """Options beyond PyG's arguments; by default, mini-batches are PyG's."""

    time_window: Any = None
    """Width of the time window before each seed's time, with both limits included: an integer, or one per seed, by type
    if the seeds are; None: no limit."""
    exclude_seed_edges: Any = False
    """Whether sampled edges that join the endpoints of a seed are removed: True; "reverse" to remove the other
    direction, too; or the type of the reverse edges if that is a separate one."""
    as_edge_index: bool = False
    """Whether `edge_index` is a PyG `EdgeIndex`, with its size and, if the edges are sorted, its order and pointers,
    so that PyG's layers need no conversion."""

    @classmethod
    def split_from(cls, kwargs: dict[str, Any], sampler: Any, *names: str) -> "ExtraOptions":
        """Return the options with these names, and remove them from the arguments of a loader."""
        found = cls(**{name: kwargs.pop(name) for name in names if name in kwargs})
        if found.time_window is None:
            return found
        if getattr(sampler, "time_attr", None) is None or getattr(sampler, "neighborhoods", None) is None:
            raise ValueError("time_window needs time_attr, the name of the times of nodes or edges; give both")
        return found


SHARE = "sampler=torch.utils.data.DistributedSampler(range(n)), where n is the number of all of them"
"""How the ranks of a distributed job share the seeds of a loader."""
PLACEMENTS = {None: Placement.AUTO, True: Placement.WORKER, False: Placement.MAIN}
"""Where features are fetched, by PyG's `filter_per_worker`."""


class PyGLoader(DataLoader[Any]):
    """A `graphfeed.DataLoader` that builds its own pipeline.

    `pipeline` is that pipeline, and `explain()` shows where each stage runs. `loader(positions)` returns the mini-batch
    of the given seeds. An epoch uses the attributes that `data` has when the epoch begins. PyG must be installed.
    """

    how_to_share = f"pass {SHARE}"
    is_subgraph: ClassVar[bool] = False
    """Whether a mini-batch is like PyG's `subgraph` of the data, rather than like a mini-batch of PyG's loaders."""
    transform: Callable[[Any], Any] | None = None
    transform_sampler_output: Callable[[Any], Any] | None = None
    filter_per_worker: bool | None = None

    def __init__(
        self, datapipe: Datapipe, options: TorchOptions | None = None, data: Any = None, **kwargs: Any
    ) -> None:
        """Construct the loader.

        Args:
            datapipe: All stages except those that the options, torch's arguments, append.
            data: The data whose attributes mini-batches have; None: there are no data that may change.
            kwargs: Arguments of `graphfeed.DataLoader`, which take precedence over those derived from the options.
        """
        if options is not None:
            datapipe, kwargs = options.end(datapipe), {**options.loader(), **kwargs}
        super().__init__(datapipe, **kwargs)
        self.data: Any = data
        self._contents: dict[Any, Any] | None = None if data is None else contents_of(data)

    def _fill(self, pipe: Datapipe, features: DataFeatures, as_edge_index: bool = False) -> Datapipe:
        """Append the stages that fetch features and build PyG's data, as set by the arguments of all loaders."""
        if self.transform_sampler_output is not None:
            pipe = pipe.transform(partial(transform_output, self.transform_sampler_output))
        runs_in = PLACEMENTS[self.filter_per_worker]
        return fetch_and_fill(pipe, features, runs_in, self.transform, self.is_subgraph, as_edge_index)

    def __iter__(self) -> Iterator[Any]:
        self._read_changes()
        return super().__iter__()

    def _read_changes(self) -> None:
        """Plan again if the attributes of `data` have changed, because PyG's loaders would use the new ones."""
        if self._contents is None or (now := contents_of(self.data)) == self._contents:
            return
        self.plan = make_plan(fill_anew(self.pipeline, self._read_features()), self._options)
        self._contents = now
        # The fingerprint was computed from the previous plan.
        self.__dict__.pop("_fingerprint", None)

    def _read_features(self) -> DataFeatures:
        filling: Any = next(iter(find(self.pipeline, FillData)))
        before = filling.features
        return features_of_data(self.data, type(before.template), before.of_edges)  # the class is for a pair of stores

    @property
    def pipeline(self) -> Datapipe:
        """The stages that produce the mini-batches."""
        return self.plan.written

    @property
    def dataset(self) -> range:
        """Positions of the seeds."""
        return range(len(self._source.item_set))

    @property
    def batch_size(self) -> int | None:
        """Number of seeds per mini-batch; None with a `batch_sampler`, as in torch."""
        size: int | None = getattr(self._source, "size", self._source.batch_size)
        return size

    @property
    def drop_last(self) -> bool:
        """Whether an incomplete last mini-batch is dropped."""
        return bool(self._source.drop_last)

    @property
    def _source(self) -> Any:
        return next(stage for stage in traverse(self.pipeline) if isinstance(stage, ItemSource))

    def enable_multithreading(self, worker_threads: int | None = None) -> AbstractContextManager[None]:
        """Return a context that does nothing: workers are threads, and use all available cores."""
        del worker_threads
        return nullcontext()

    def enable_cpu_affinity(self, loader_cores: Any = None) -> AbstractContextManager[None]:
        """Return a context that does nothing: the operating system assigns threads to cores."""
        del loader_cores
        return nullcontext()

    def __repr__(self) -> str:
        samplers: list[Any] = list(find(self.pipeline, FanoutSampler))
        # The stage's own hops begin with the outermost one.
        hops = [list(stage.fanouts)[::-1] for stage in samplers if isinstance(stage.fanouts, Sequence)]
        parts = [f"{len(self._source.item_set)} {'seeds' if samplers else 'items'}"]
        parts += [f"num_neighbors={numbers}" for numbers in hops]
        parts += [] if self.batch_size is None else [f"batch_size={self.batch_size}"]
        return f"{type(self).__name__}({', '.join([*parts, f'num_workers={self.num_workers}'])})"

    def __call__(self, index: Any) -> Any:
        """Return the mini-batch of the seeds at the given positions. It belongs to no epoch; its draws are random."""
        self._read_changes()
        positions = (
            index if isinstance(index, torch.Tensor) else torch.as_tensor(index, dtype=torch.int64, device="cpu")
        )
        minibatch = self._source.minibatch_of(positions, 0)
        minibatch.key = None  # so that each stage draws a random one
        return call_stages(self.pipeline, minibatch)
