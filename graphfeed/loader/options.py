"""Checks and default values of a loader's options."""

import os
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import wraps
from itertools import count
from typing import Any, TypeVar, cast

from torch import distributed
from torch.utils.data import IterDataPipe

from graphfeed.datapipes import Datapipe, DistributedItemSampler, Source, find_rank
from graphfeed.datapipes.pipeline import find
from graphfeed.loader.executors.cores import available_cores
from graphfeed.loader.placement_rules import REQUESTS_PER_SERVER
from graphfeed.loader.progress import OrderedSource
from graphfeed.loader.rules import sampled_on_device
from graphfeed.loader.runner import Servers
from graphfeed.ops import draw_unkeyed
from graphfeed.ops.arguments import brief, check_count, check_position, check_seconds, checked, kind_of, parse_bytes
from graphfeed.ops.process import load_entry_point
from graphfeed.storage.datasets import identify

FORMER_OPTIONS = ("token", "tls_root_certs", "patience")
"""Former arguments of the loader, now arguments of `SamplingServers`."""
OF_ITEM_SAMPLER = {"batch_size", "drop_last", "shuffle"}
"""Arguments of torch's DataLoader that a pipeline's source has."""
CHECKED = count()
"""Numbers of the loaders whose items are compared with those of another rank."""
MOST_IN_FLIGHT = 1 << 31
"""Maximum of `num_workers`, and of `prefetch_factor`."""
Init = TypeVar("Init", bound=Callable[..., None])


def with_other_forms(init: Init) -> Init:
    """Make the loader's `__init__` accept torch datapipes, `servers`, and deprecated arguments with a warning."""

    @wraps(init)
    def make(self: Any, datapipe: object, num_workers: Any = None, *args: Any, **kwargs: Any) -> None:
        for name in OF_ITEM_SAMPLER & kwargs.keys():
            raise TypeError(f"DataLoader() has no argument {name!r}; give it to the ItemSampler of the pipeline")
        former = {name: kwargs.pop(name) for name in FORMER_OPTIONS if name in kwargs}
        if former:
            warnings.warn(
                f"{', '.join(former)} of DataLoader() moved to SamplingServers; write executor=SamplingServers("
                f"addresses, {', '.join(f'{name}=...' for name in former)})",
                DeprecationWarning,
                stacklevel=2,
            )
        if "servers" in kwargs:
            kwargs["executor"] = find_servers(kwargs.get("executor"), kwargs.pop("servers"), **former)
        init(self, as_pipeline(datapipe), without_auto(num_workers), *args, **kwargs)

    return cast("Init", make)


def as_pipeline(datapipe: object) -> Datapipe[Any]:
    """Return a pipeline, converted from a torch datapipe if its stages have equivalents, or raise a TypeError."""
    if isinstance(datapipe, IterDataPipe):
        converted = load_entry_point("converters", "as_stage")(datapipe)
        datapipe = datapipe if converted is None else converted  # `or` would fail for a stage without a length
    if not isinstance(datapipe, Datapipe):
        raise TypeError(
            f"datapipe must be a pipeline of stages, but is {kind_of(datapipe)}; begin with an ItemSampler, "
            "and derive user-defined stages from graphfeed.Datapipe"
        )
    return datapipe


def without_auto(num_workers: Any) -> Any:
    """Return the number of workers, or None with a DeprecationWarning for `"auto"`, a measurement in 0.1.0."""
    if not isinstance(num_workers, str) or num_workers != "auto":
        return num_workers
    warnings.warn(
        "num_workers='auto' is deprecated and means None; print the result of loader.profile() to see how many workers "
        "are best",
        DeprecationWarning,
        stacklevel=3,
    )
    return None


@checked
def find_servers(executor: Any, servers: Iterable[str], **options: Any) -> Any:
    """Return the executor, or one for the servers if there are any; raise a ValueError if both are given."""
    if not isinstance(servers, str) and not (servers := tuple(servers)):
        return executor
    if executor is not None:
        raise ValueError("servers replace workers, but an executor was given as well; leave one of them out")
    return load_entry_point("executors", "servers")(servers, **options)


def check_options(
    num_workers: int | None, worker: str, executor: Executor | Servers | None, prefetch_factor: int, timeout: float
) -> None:
    """Raise if an option is out of range, or if two contradict each other."""
    if num_workers is not None:
        check_count("num_workers", num_workers, 0, MOST_IN_FLIGHT)
    if worker not in ("thread", "process"):
        raise ValueError(f"worker must be 'thread' or 'process', but is {brief(worker)}")
    if executor is not None and (worker != "thread" or num_workers == 0):
        who = "servers replace" if isinstance(executor, Servers) else "an executor replaces"
        raise ValueError(
            f"{who} workers, but worker={worker!r} and num_workers={num_workers} were given as well; leave one of them "
            "out"
        )
    check_count("prefetch_factor", prefetch_factor, 1, MOST_IN_FLIGHT)
    check_seconds("timeout", timeout)


def usual_workers(pipe: Datapipe[Any], worker: str, executor: Executor | Servers | None) -> int:
    if isinstance(executor, Servers):
        return REQUESTS_PER_SERVER * len(executor.addresses)
    needs_none = worker == "thread" and executor is None and sampled_on_device(pipe) is not None
    return 0 if needs_none else available_cores()


def check_reading(window: int | None, memory_limit: int | str | None) -> tuple[int | None, int | None]:
    if window is not None:
        check_count("window", window, 0)
    return window, None if memory_limit is None else parse_bytes("memory_limit", memory_limit)


def choose_seed(pipe: Datapipe[Any], seed: int | None) -> int:
    """Return the given seed, or that of a source, or a random one that is the same on all ranks (`graphfeed.seed`)."""
    for source in find(pipe, Source):
        if seed is None:
            seed = getattr(source, "seed", None)
    if seed is not None:
        return check_position(seed, 0, 0)
    drawn = draw_unkeyed()
    for source in find(pipe, DistributedItemSampler):
        drawn = source.shared_seed(drawn)  # type: ignore[attr-defined]
    return drawn


class EvenItems:
    """Warns, once for each loader, if all ranks build mini-batches of the same items.

    No rank waits for another one to create its loader, which some ranks may never do. Each rank writes a digest of its
    items to the store of the process group and reads that of the next rank: when the loader is created, and again, for
    at most a second, when its first epoch begins. Without a process group, the items of a rank are not compared.
    """

    def __init__(self, pipe: Datapipe[Any], advice: str) -> None:
        self._advice, self._number, self._items = advice, -1, None
        for source in find(pipe, Source):
            is_shared = isinstance(source, DistributedItemSampler)
            is_shared |= isinstance(source, OrderedSource) and source.gives_a_share()
            if advice and not is_shared:
                self._items = self._items or getattr(source, "item_set", None)
        if find_rank() is not None:
            self.look(0.0)

    def look(self, seconds: float) -> None:
        """Warn if the next rank has, or may have, the same items; wait up to `seconds` for its digest."""
        if self._items is None:
            return
        world_size = int(os.environ.get("WORLD_SIZE") or 1) if (found := find_rank()) is None else found[1]
        is_same = None
        if world_size > 1:
            is_same = found is None or self._has_next_rank_the_same(*found, seconds)
        if is_same is not None or seconds:
            self._items = None  # the answer is known, or this was the last attempt
        if is_same:
            warnings.warn(
                f"each of {world_size} ranks builds mini-batches of all items, which are the same if the seeds are; "
                f"{self._advice}",
                stacklevel=4,
            )

    def _has_next_rank_the_same(self, rank: int, world_size: int, seconds: float) -> bool | None:
        try:
            store: Any = distributed.group.WORLD.get_group_store()  # type: ignore[union-attr]
        except AttributeError:
            return True  # a release of torch without this method
        store = store.clone() if hasattr(store, "clone") else store  # another thread may be waiting on the connection
        own, end = f"{len(self._items or ())} {identify(self._items)}", time.monotonic() + seconds
        if self._number < 0:
            self._number = next(CHECKED)
            for key in (own, self._number):
                store.set(f"graphfeed/items/{rank}/{key}", "")
        there = f"graphfeed/items/{(rank + 1) % world_size}"
        while True:
            is_known = store.check([f"{there}/{self._number}"])
            if store.check([f"{there}/{own}"]):
                return True
            if is_known or time.monotonic() >= end:
                return False if is_known else None
            time.sleep(0.01)
