"""Rows as they were before the last steps: in checkpoints, and while a step changes them."""

from pathlib import Path

import torch

from tests.kinds.digests import assert_same
from tests.kinds.refusals import check_refused
from tests.unit.storage.test_trainable_feature import IDS, table, train


def test_a_checkpoint_has_the_rows_that_the_last_steps_overwrote(tmp_path: Path) -> None:
    feature = table(staleness=2)
    for _ in range(3):
        train(feature)
    feature.fetch(IDS)
    feature.zero_grad()
    feature.save(tmp_path)
    feature.save(tmp_path)
    assert sorted(path.name for path in (tmp_path / "part_0").iterdir()) == [
        f"{name}.1.npy" for name in ("earlier", "earlier_rows", "rows", "state")
    ]
    state = feature.state_dict()
    assert state["earlier"].tolist() == [[2, own] for own in IDS.tolist()]  # that of the last mini-batch is empty
    for staleness in (0, 1, 2, 5):
        loaded, copied = table(staleness=staleness), table(staleness=staleness, seed=9)
        loaded.load(tmp_path)
        copied.load_state_dict(state)
        for other in (loaded, copied):
            assert_same(other.read(), feature.read())
            old = state["earlier_rows"] if staleness >= 2 else feature.read(IDS)
            assert_same(other.fetch(IDS).detach(), old)
    plain = table()
    plain.save(tmp_path / "plain")
    feature.load(tmp_path / "plain")
    assert_same(feature.fetch(IDS).detach(), plain.read(IDS))
    feature.zero_grad()
    check_refused(
        [
            (lambda: feature.load_state_dict({**state, "earlier": torch.ones(3)}), ValueError, "earlier rows of the"),
            (
                lambda: feature.load_state_dict({**state, "earlier": torch.full((3, 2), 6)}),
                ValueError,
                "earlier ids must be in 0 .. 5",
            ),
            (
                lambda: feature.load_state_dict({**state, "earlier_rows": torch.ones(2, 2)}),
                ValueError,
                r"float32\[2, 2\], but should be float32\[3, 2\]",
            ),
        ]
    )
    assert_same(feature.read(), plain.read())


def test_rows_may_be_read_while_a_step_changes_them() -> None:
    feature, ids = table(staleness=2), torch.tensor([0, 3, 5])
    before = feature.read(ids).clone()

    def read(wanted: torch.Tensor) -> torch.Tensor:
        rows = feature.read(wanted)
        train(feature, torch.tensor([3, 3, 1]))
        rows[1, 0] = feature.read(torch.tensor([3]))[0, 0]  # half old, half new
        return rows

    assert_same(feature.earlier.read(read, ids, feature.earlier.due(2)), before)
    assert not torch.equal(feature.read(ids), before)
