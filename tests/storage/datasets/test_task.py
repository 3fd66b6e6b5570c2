import pytest

from graphfeed.storage import ItemSet, OnDiskTask, Task


def test_a_task_says_what_it_has() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Task()  # type: ignore[abstract]
    items = ItemSet(3, names="seeds")
    task: Task = OnDiskTask({"name": "t"}, items, None, None)
    assert task.metadata["name"] == "t"
    assert (task.train_set, task.validation_set, task.test_set) == (items, None, None)
