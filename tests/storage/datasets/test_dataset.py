from dataclasses import FrozenInstanceError

import pytest
import torch

from graphfeed.storage import BasicFeatureStore, Dataset, ItemSet, TorchBasedFeature, from_coo


def test_a_dataset_holds_what_it_was_given_and_is_fixed() -> None:
    graph = from_coo((torch.tensor([0, 1]), torch.tensor([1, 2])), 3)
    feature = BasicFeatureStore({("node", None, "feat"): TorchBasedFeature(torch.eye(3))})
    train, validation, test = (ItemSet(torch.tensor([node]), names="seeds") for node in range(3))
    nodes = ItemSet(3, names="seeds")
    metadata = {"num_classes": 2}
    dataset = Dataset("path", graph, feature, train, validation, test, nodes, metadata)
    assert dataset.graph is graph
    assert dataset.feature is feature
    assert dataset.train_set is train
    assert dataset.validation_set is validation
    assert dataset.test_set is test
    assert dataset.all_nodes_set is nodes
    assert dataset.dataset_name == "path"
    (task,) = dataset.tasks
    assert (task.train_set, task.validation_set, task.test_set) == (train, validation, test)
    assert task.metadata == metadata
    with pytest.raises(FrozenInstanceError):
        dataset.name = "other"  # type: ignore[misc]
