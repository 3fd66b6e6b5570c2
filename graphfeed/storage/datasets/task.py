"""What to train, validate and test on."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from graphfeed.storage.datasets.item_set import HeteroItemSet, ItemSet


class Task(ABC):
    """The item sets of a task, and what else is known of it."""

    @property
    @abstractmethod
    def metadata(self) -> Mapping[str, Any]:
        """What is known, such as the name and the number of classes."""

    @property
    @abstractmethod
    def train_set(self) -> ItemSet | HeteroItemSet | None:
        """What to train on."""

    @property
    @abstractmethod
    def validation_set(self) -> ItemSet | HeteroItemSet | None:
        """What to validate on."""

    @property
    @abstractmethod
    def test_set(self) -> ItemSet | HeteroItemSet | None:
        """What to test on."""
