"""Specification of a task whose items are in separate tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphfeed.ingest.dataset.settings import is_column
from graphfeed.ingest.dataset.split import PARTS
from graphfeed.ops.arguments import brief


@dataclass(frozen=True)
class TaskTable:
    """A task whose items are in separate tables: each row has a node, a time, and the value or the edges to predict.

    Args:
        nodes: Node type of the items.
        seeds: Column of the ids of these nodes.
        train, validation, test: The files of each part. Those for testing have no labels and destinations: their
            columns are never read.
        time: Column of the times.
        label: Column of the labels, to predict a value.
        destinations: Column with a list of ids of `destination_nodes` in each row, to predict edges. Items for training
            whose list is empty are left out.
        dtype: "float32" for labels that are real numbers, even if the column has integers. By default, integers are
            classes, and negative ones are missing.
        metadata: Further entries of the task's metadata, such as "sampling", the arguments of the sampler that
            `graphfeed.loaders` uses.

    Example:
        >>> TaskTable("user", "id", train="train.parquet", time="at", label="churn").parts
        {'train': ('train.parquet',)}
    """

    nodes: str
    seeds: str
    train: Any = ()
    validation: Any = ()
    test: Any = ()
    time: str | None = None
    label: str | None = None
    destinations: str | None = None
    destination_nodes: str | None = None
    dtype: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in PARTS:
            files = getattr(self, name)
            object.__setattr__(self, name, tuple(files) if isinstance(files, (list, tuple)) else (files,))
        for name in ("seeds", "time", "label", "destinations"):
            value = getattr(self, name)
            if not is_column(value) and not (value is None and name != "seeds"):
                raise TypeError(f"{name} must be the name of a column, but is {brief(value)}")
            object.__setattr__(self, name, None if value is None else str(value))
        if self.dtype not in {None, "float32"}:
            raise ValueError(f"dtype must be 'float32', but is {brief(self.dtype)}")
        if not self.train:
            raise ValueError("train is missing; give the files of the items for training")
        if (self.label is None) == (self.destinations is None):
            raise ValueError("a task needs a label, to predict values, or destinations, to predict edges; give one")
        if (self.destinations is None) != (self.destination_nodes is None):
            raise ValueError("destinations need destination_nodes, the type of these nodes; give both")

    @property
    def parts(self) -> dict[str, tuple[Any, ...]]:
        """The files of the parts that have any."""
        return {part: files for part in PARTS if (files := getattr(self, part))}
