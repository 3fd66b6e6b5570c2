"""Stages that rules insert keep the order of mini-batches, and the positions of failures."""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.loader import (
    ByIndex,
    FetchBeforeSteps,
    InThreads,
    InWorkers,
    Prefetch,
    ReadAhead,
    RunContext,
    SampleTogether,
    StreamPrefetch,
)
from tests.kinds.digests import digest, digests
from tests.stand_ins.late_streams import late_streams
from tests.stand_ins.waiting import NO_EXCEPTIONS, FailsAt, unchanged

pytestmark = pytest.mark.usefixtures("no_leaks")

NODES, COUNT = 200, 25
KEY = ("node", None, "feat")


def graph(nodes: int = NODES) -> gf.FusedCSCSamplingGraph:
    """Return a graph with three in-edges per node."""
    numbers = torch.arange(nodes)
    return gf.from_coo((numbers.repeat(3), torch.cat([numbers * 7, numbers * 11, numbers + 1]) % nodes), nodes)


def sampled(function: Callable[[Any], Any] = unchanged, source: Callable[..., Any] = unchanged, size: int = 8) -> Any:
    """Return a pipeline of 25 mini-batches, whose seeds are passed to a function."""
    items = source(gf.ItemSampler(gf.ItemSet(NODES, names="seeds"), batch_size=size, shuffle=True, drop_last=True))
    return items.transform(function).sample_neighbor(graph(), [2, 2])


def fetched(path: Path, source: Any) -> Any:
    """Return a pipeline with features in a file."""
    if not path.exists():
        np.save(path, np.arange(NODES * 3, dtype=np.float32).reshape(NODES, 3))
    store = gf.BasicFeatureStore({KEY: gf.DiskBasedFeature(path)})
    return source.fetch_feature(store, node_feature_keys=["feat"])


def read_ahead(pipe: Any, size: int = 1 << 20, window: int | None = None) -> ReadAhead:
    return ReadAhead(pipe, pipe.features(), size, window)


def together(pipe: Any, window_bytes: float = float("inf"), num_threads: int = 0) -> SampleTogether:
    return SampleTogether(pipe, 10, window_bytes, num_threads)


INSERTED: dict[str, Callable[..., Any]] = {
    "workers": lambda pipe, path: InWorkers(pipe(source=ByIndex), num_workers=2, in_flight=4),
    "workers that are sent mini-batches": lambda pipe, path: InWorkers(pipe(), num_workers=2, in_flight=4),
    "threads behind workers": lambda pipe, path: InThreads(InWorkers(pipe(source=ByIndex), 2, 4).copy_to("cpu")),
    "a thread": lambda pipe, path: Prefetch(pipe()),
    "a stream": lambda pipe, path: StreamPrefetch(pipe().copy_to("meta"), "copy", "meta"),
    "windows": lambda pipe, path: read_ahead(fetched(path, pipe())),
    "rows before steps": lambda pipe, path: FetchBeforeSteps(fetched(path, pipe()), 2),
    "sampled together": lambda pipe, path: together(pipe()),
    "sampled together in threads": lambda pipe, path: together(pipe(), num_threads=2),
}
"""For each of them, a function from the stages before it and a file to a pipeline that ends with it."""
EACH = pytest.mark.parametrize("kind", INSERTED)


@contextmanager
def running(kind: str, folder: Path, **options: Any) -> Iterator[tuple[Any, Callable[[], Generator[Any, None, None]]]]:
    """Yield a pipeline with an inserted stage, and a function that begins an epoch of it."""
    with late_streams() if kind == "a stream" else nullcontext(), ThreadPoolExecutor(2) as executor:
        pipe = INSERTED[kind](lambda **more: sampled(**options, **more), folder / "rows.npy")
        memories: dict[Any, Any] = {}

        def begin() -> Generator[Any, None, None]:
            for minibatch in RunContext(executor, memories=memories).drive(pipe):
                yield digest(minibatch.to("cpu"))

        yield pipe, begin


def expected(kind: str, folder: Path) -> list[str]:
    return digests(fetched(folder / "rows.npy", sampled()) if kind in ("windows", "rows before steps") else sampled())


@EACH
def test_mini_batches_are_those_of_the_stages_before_in_each_epoch_and_in_two_at_once(
    kind: str, tmp_path: Path
) -> None:
    with running(kind, tmp_path) as (pipe, begin):
        right = expected(kind, tmp_path)
        assert len(pipe) == len(right) == COUNT
        assert list(zip(begin(), begin(), strict=True)) == list(zip(right, right, strict=True))
    with running(kind, tmp_path, size=NODES + 1) as (pipe, begin):
        assert len(pipe) == len(list(begin())) == 0, "an epoch may be empty"


@EACH
def test_a_failure_comes_in_the_place_of_its_mini_batch(kind: str, tmp_path: Path) -> None:
    for index in (0, 1, 4, 7):
        with running(kind, tmp_path, function=FailsAt(index)) as (_, begin):
            minibatches = begin()
            assert [next(minibatches) for _ in range(index)] == expected(kind, tmp_path)[:index]
            with pytest.raises(ArithmeticError, match="no") as caught:
                next(minibatches)
            assert f"in MiniBatchTransformer, stage 2, mini-batch {index} of epoch 0" in caught.value.__notes__[0]


@EACH
def test_an_error_that_is_no_exception_does_not_look_like_the_end_of_the_epoch(kind: str, tmp_path: Path) -> None:
    for index, error in product((0, 4), NO_EXCEPTIONS):
        with running(kind, tmp_path, function=FailsAt(index, error)) as (_, begin):
            found: list[str] = []
            with pytest.raises(error, match="no") as caught:
                found.extend(begin())
            # In the thread that iterates, it is raised at once, as Ctrl-C must be.
            assert found == expected(kind, tmp_path)[: len(found)]
            assert f"in MiniBatchTransformer, stage 2, mini-batch {index} of epoch 0" in caught.value.__notes__[0]


@EACH
def test_an_epoch_that_is_left_early_harms_none_that_follows(kind: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as (_, begin):
        for left in (0, 1, 2, 5):
            minibatches = begin()
            assert [next(minibatches) for _ in range(left)] == expected(kind, tmp_path)[:left]
            minibatches.close()
        assert list(begin()) == expected(kind, tmp_path)
