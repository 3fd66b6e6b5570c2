"""The rows that the last steps of a table overwrote."""

import signal
from typing import Any

import pytest
import torch

from graphfeed import TrainableFeature
from tests.kinds.digests import assert_same

IDS = torch.tensor([3, 1, 3])


def table() -> TrainableFeature:
    return TrainableFeature(6, 2, "sgd", 0.5, seed=3, staleness=2)


def train(feature: TrainableFeature) -> None:
    feature.fetch(IDS).square().sum().backward()  # type: ignore[no-untyped-call]
    feature.step()


def test_ctrl_c_in_a_step_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted, other = table(), table()
    with monkeypatch.context() as patch:
        patch.setattr(
            "graphfeed.storage.features.trainable_feature.train_rows", lambda *_: signal.raise_signal(signal.SIGINT)
        )
        with pytest.raises(KeyboardInterrupt):
            train(interrupted)
        patch.setattr("graphfeed.storage.features.trainable_feature.train_rows", lambda *_: None)
        train(other)
    for feature in (interrupted, other):
        train(feature)
    assert_same(interrupted.state_dict(), other.state_dict())
    assert_same(interrupted.fetch(IDS), other.fetch(IDS))


def test_ctrl_c_in_a_load_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    feature, other = table(), table()
    train(other)
    copy = feature._copy_parts

    def interrupted(*arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        copy(*arguments)

    monkeypatch.setattr(feature, "_copy_parts", interrupted)
    with pytest.raises(KeyboardInterrupt):
        feature.load_state_dict(other.state_dict())
    assert_same(feature.state_dict(), other.state_dict())


def test_a_checkpoint_after_a_dropped_mini_batch_has_the_dtype_of_the_rows() -> None:
    feature, other, default = table(), table(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        feature.fetch(IDS)
        feature.zero_grad()
        train(feature)
        state: dict[str, Any] = feature.state_dict()
    finally:
        torch.set_default_dtype(default)
    assert state["earlier_rows"].dtype == torch.float32
    other.load_state_dict(state)
    assert_same(other.fetch(IDS), feature.fetch(IDS))
