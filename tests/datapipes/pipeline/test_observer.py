from collections.abc import Iterator
from typing import Any

import pytest

import graphfeed as gf
from graphfeed.datapipes.pipeline.observer import OBSERVER, observe_each


class Log:
    """Writes down what it sees."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def stage_begin(self, stage: gf.Datapipe, key: gf.Key | None) -> None:
        self.seen.append(f"{type(stage).__name__} begins {key.index if key else ''}".strip())

    def stage_end(self, stage: gf.Datapipe, key: gf.Key | None) -> None:
        self.seen.append(f"{type(stage).__name__} ends {key.index if key else ''}".strip())

    def wait_begin(self, cut: gf.Datapipe, side: str) -> None:
        raise AssertionError

    def wait_end(self, cut: gf.Datapipe, side: str) -> None:
        raise AssertionError


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    token = OBSERVER.set(log)
    yield log
    OBSERVER.reset(token)


def items() -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(2, names="seeds"), batch_size=1)


def test_a_transform_is_seen_around_its_call_and_a_loop_around_each_next(log: Log) -> None:
    assert len(list(items().transform().buffer())) == 2
    assert log.seen == [
        "Bufferer begins",
        *("ItemSampler begins", "ItemSampler ends 0", "MiniBatchTransformer begins 0", "MiniBatchTransformer ends 0"),
        *("ItemSampler begins", "ItemSampler ends 1", "MiniBatchTransformer begins 1", "MiniBatchTransformer ends 1"),
        "Bufferer ends 0",
        *("Bufferer begins", "ItemSampler begins", "ItemSampler ends", "Bufferer ends 1"),
        *("Bufferer begins", "Bufferer ends"),
    ]


def test_a_transform_with_a_loop_is_seen_once(log: Log) -> None:
    assert len(list(items().copy_to("cpu"))) == 2
    assert log.seen.count("CopyTo begins") == 3  # once for the end
    assert log.seen.count("CopyTo ends 0") == log.seen.count("CopyTo ends 1") == 1


def test_a_failure_ends_what_began(log: Log) -> None:
    def fail() -> Iterator[Any]:
        yield gf.MiniBatch()
        raise LookupError

    with pytest.raises(LookupError):
        list(observe_each(items(), fail(), log))
    assert log.seen == ["ItemSampler begins", "ItemSampler ends"] * 2
