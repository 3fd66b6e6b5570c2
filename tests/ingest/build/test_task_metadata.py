from typing import Any

from graphfeed.ingest.build.task_metadata import describe_task


def described(num_classes: int, classes: list[str] | None, **items: Any) -> dict[str, Any]:
    return {"items": items, "num_classes": num_classes, "classes": classes}


def test_a_task_has_the_items_of_all_types_and_the_classes_of_each_that_has_some() -> None:
    train = {"seeds": "a.npy", "labels": "b.npy"}
    nodes: dict[str | None, dict[str, Any]] = {
        "x": described(2, ["n", "y"], train=train),
        "y": described(3, None, test={"seeds": "c.npy"}),
    }
    task = describe_task(nodes, "classify", in_memory=True)
    assert task is not None
    assert list(task) == ["name", "num_classes", "class_names", "train_set", "test_set"]
    assert task["num_classes"] == {"x": 2, "y": 3}
    assert task["class_names"] == {"x": ["n", "y"]}
    (entry,) = task["train_set"]
    assert entry["type"] == "x"
    assert entry["data"][1] == {"name": "labels", "format": "numpy", "path": "graphfeed/b.npy", "in_memory": True}
    assert describe_task({"x": described(2, None)}, "classify", in_memory=False) is None
