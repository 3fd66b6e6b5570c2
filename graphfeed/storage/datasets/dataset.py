"""A graph together with its features and item sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphfeed.ops.arguments import checked
from graphfeed.storage.datasets.item_set import HeteroItemSet, ItemSet
from graphfeed.storage.datasets.on_disk_dataset import OnDiskTask, Tasks
from graphfeed.storage.features.feature_store import FeatureStore
from graphfeed.storage.graph.fused_csc_sampling_graph import FusedCSCSamplingGraph


@checked
@dataclass(frozen=True)
class Dataset:
    """A graph, its features, and the items to train, validate and test on."""

    name: str
    graph: FusedCSCSamplingGraph
    feature: FeatureStore
    train_set: ItemSet | HeteroItemSet
    validation_set: ItemSet | HeteroItemSet
    test_set: ItemSet | HeteroItemSet
    all_nodes_set: ItemSet | HeteroItemSet
    """Every node as a seed, for inference."""
    metadata: Mapping[str, Any]
    """Properties of the task, such as the number of classes."""

    @property
    def dataset_name(self) -> str:
        """The name; an `OnDiskDataset` has this property too."""
        return self.name

    @property
    def tasks(self) -> list[OnDiskTask]:
        """The only task; an `OnDiskDataset` has this property too."""
        return Tasks([OnDiskTask(dict(self.metadata), self.train_set, self.validation_set, self.test_set)])
