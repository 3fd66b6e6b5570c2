import pytest
import torch

from graphfeed.storage import HeteroItemSet, ItemSet, OnDiskTask, Task


def test_a_task_says_what_it_has() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Task()  # type: ignore[abstract]
    items = ItemSet(3, names="seeds")
    task: Task = OnDiskTask({"name": "t"}, items, None, None)
    assert task.metadata["name"] == "t"
    assert (task.train_set, task.validation_set, task.test_set) == (items, None, None)


def test_a_task_prints_shapes() -> None:
    items = ItemSet((torch.arange(3), torch.zeros(3, 2), ["a", "b", "c"]), names=("seeds", "labels", None))
    typed = HeteroItemSet({"user": ItemSet(3, names="seeds"), "item": ItemSet(torch.arange(2), names="seeds")})
    assert str(OnDiskTask({"name": "t", "num_classes": 2}, items, typed, None)) == (
        "OnDiskTask(\n"
        "  train_set={'seeds': int64[3], 'labels': float32[3, 2], None: ['a', 'b', 'c']},\n"
        "  validation_set={'user': {'seeds': 3}, 'item': {'seeds': int64[2]}},\n"
        "  test_set=None,\n"
        "  metadata={'name': 't', 'num_classes': 2},\n"
        ")"
    )
