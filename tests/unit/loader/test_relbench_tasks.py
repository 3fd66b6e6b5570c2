"""Loaders of RelBench's tasks: entities and recommendation, in three splits, at the times of their seeds."""

from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ingest import build_dataset, from_relbench
from tests.kinds.digests import digests
from tests.kinds.relbench_folder import write_shop


def made(folder: Path, task: str) -> Any:
    write_shop(folder)
    return build_dataset(from_relbench(folder, task))


def loaders(data: Any, task: Any = None, **options: Any) -> Any:
    options = {"num_workers": 0, "seed": 1} | options
    return gf.loaders(data.tasks[0] if task is None else task, data.graph, [-1, -1], 8, data.feature, **options)


def check_times(data: Any, batch: Any, times: dict[str, torch.Tensor]) -> int:
    """Check that the orders of the first hop are all those of the seeds until their times; return their number."""
    count, first = 0, dict(zip(data.graph.node_type_to_id, data.graph.node_type_offset.tolist(), strict=False))
    at = data.graph.node_attributes["time"][first["orders"] :][: data.graph.num_nodes["orders"]]
    hop = batch.sampled_subgraphs[-1]
    for name, own in times.items():
        edge_type = f"orders:f2p_{name[:-1]}:{name}"
        csc = hop.sampled_csc[edge_type]
        orders = hop.original_row_node_ids["orders"][csc.indices]
        columns = torch.arange(len(own)).repeat_interleave(csc.indptr.diff()[: len(own)])
        assert (at[orders] <= own[columns]).all()
        assert orders.numel() == columns.numel()
        count += orders.numel()
    return count


def test_loaders_of_entities_have_labels_and_what_was_known(tmp_path: Path) -> None:
    data = made(tmp_path, "spent")
    for loader, items in zip(loaders(data), (data.tasks[0].train_set, data.tasks[0].validation_set), strict=False):
        found: dict[tuple[int, int], list[float]] = {}
        for batch in loader:
            rows = zip(batch.seeds["users"], batch.timestamp["users"], batch.labels["users"], strict=True)
            for user, time, label in rows:
                found.setdefault((int(user), int(time)), []).append(float(label))
            assert check_times(data, batch, batch.timestamp) > 0
        expected: dict[Any, Any] = {}
        for user, time, label in zip(*items.by_type["users"][:], strict=True):
            expected.setdefault((int(user), int(time)), []).append(float(label))
        assert {key: sorted(own) for key, own in found.items()} == {key: sorted(own) for key, own in expected.items()}
    assert all(batch.labels is None for batch in loaders(data)[2])


def test_loaders_of_links_have_positives_for_training_and_sources_otherwise(tmp_path: Path) -> None:
    data = made(tmp_path, "bought")
    train, validation, test = loaders(data, negative_ratio=2)
    known: dict[Any, set[int]] = {}
    items = data.tasks[0].train_set.by_type["users"]
    for user, time, ends in zip(*items[:], strict=True):
        known.setdefault((int(user), int(time)), set()).update(ends[ends >= 0].tolist())
    seen = 0
    for batch in train:
        pairs, times = batch.seeds["users:target:items"], batch.timestamp["users:target:items"]
        count = len(times)
        assert len(pairs) == 3 * count
        rows = zip(pairs[:count].tolist(), times.tolist(), strict=True)
        assert all(end in known[user, time] for (user, end), time in rows)
        spread = times[batch.indexes["users:target:items"]]
        assert check_times(data, batch, {"users": spread, "items": spread}) > 0
        seen += count
    assert seen == len(items)
    for loader, own in ((validation, data.tasks[0].validation_set), (test, data.tasks[0].test_set)):
        found = torch.cat([batch.seeds["users"] for batch in loader])
        assert found.equal(own.by_type["users"][:][0])


@pytest.mark.parametrize("task", ["spent", "bought"])
def test_workers_change_no_mini_batch(tmp_path: Path, task: str) -> None:
    data = made(tmp_path, task)
    expected = [digests(loader) for loader in loaders(data)]
    assert [digests(loader) for loader in loaders(data, num_workers=2)] == expected


def test_lists_need_the_type_of_their_destinations(tmp_path: Path) -> None:
    data = made(tmp_path, "bought")
    for wrong in (None, "item"):
        task = data.tasks[0]
        task.metadata["destination_type"] = wrong
        with pytest.raises(ValueError, match=r"destination_type in its metadata is .*; name a node type of"):
            loaders(data, task)
