"""The interface of tasks: the item sets to train, validate and test on."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from graphfeed.storage.datasets.item_set import HeteroItemSet, ItemSet


class Task(ABC):
    """The item sets of a task, and its metadata."""

    @property
    @abstractmethod
    def metadata(self) -> Mapping[str, Any]:
        """Properties of the task, such as its name and the number of classes."""

    @property
    @abstractmethod
    def train_set(self) -> ItemSet | HeteroItemSet | Any:
        """The items to train on."""

    @property
    @abstractmethod
    def validation_set(self) -> ItemSet | HeteroItemSet | Any:
        """The items to validate on."""

    @property
    @abstractmethod
    def test_set(self) -> ItemSet | HeteroItemSet | Any:
        """The items to test on."""
