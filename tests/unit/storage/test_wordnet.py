from pathlib import Path

import numpy as np
import pytest
import torch

from graphfeed.storage import Dataset, HeteroItemSet, ItemSet, datasets
from graphfeed.storage.graph import ORIGINAL_EDGE_ID, FusedCSCSamplingGraph

FOLDER = Path(datasets.__file__).parent
NUM_SYNSETS, NUM_WORDS = 117_659, 147_306


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return datasets.wordnet()


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "wordnet.npz", allow_pickle=False) as file:
        return dict(file)


def seeds_and_labels(items: ItemSet | HeteroItemSet) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all of a part of the split."""
    seeds, labels = items[:]["synset"]
    return seeds, labels


def test_every_relation_comes_in_both_directions(dataset: Dataset) -> None:
    assert dataset.graph.num_nodes == {"synset": NUM_SYNSETS, "word": NUM_WORDS}
    counts = dataset.graph.num_edges
    assert isinstance(counts, dict)
    assert sum(counts.values()) == 2 * (235_402 + 206_941)
    forward = [kind for kind in counts if ":rev_" not in kind]
    assert len(forward) == 19
    for kind in forward:
        source, relation, destination = kind.split(":")
        assert counts[f"{destination}:rev_{relation}:{source}"] == counts[kind]
    assert len(counts) == 2 * len(forward)


def test_edges_are_those_of_the_file(dataset: Dataset, arrays: dict[str, np.ndarray]) -> None:
    graph = dataset.graph
    assert isinstance(graph, FusedCSCSamplingGraph)
    assert graph.type_per_edge is not None
    assert graph.edge_type_to_id is not None
    columns = torch.arange(graph.total_num_nodes).repeat_interleave(graph.csc_indptr.diff())
    first = {"synset": 0, "word": NUM_SYNSETS}
    for kind, number in graph.edge_type_to_id.items():
        source, relation, destination = kind.split(":")
        own = (graph.type_per_edge == number).nonzero().squeeze(1)
        rows = graph.edge_attribute(ORIGINAL_EDGE_ID)[own].numpy()
        ends = [graph.indices[own] - first[source], columns[own] - first[destination]]
        if relation.startswith("rev_"):
            ends, source, destination = ends[::-1], destination, source
        name = f"{relation.removeprefix('rev_')}__{source}__{destination}"
        assert np.array_equal(ends[0], arrays[f"{name}__src"][rows])
        assert np.array_equal(ends[1], arrays[f"{name}__dst"][rows])
        assert np.array_equal(np.sort(rows), np.arange(len(arrays[f"{name}__src"])))


def test_features_are_the_words_of_the_definitions(dataset: Dataset, arrays: dict[str, np.ndarray]) -> None:
    ids = torch.tensor([NUM_SYNSETS - 1, 0, 5])
    rows = dataset.feature.read("node", "synset", "feat", ids)
    assert rows.dtype == torch.uint8
    assert dataset.feature.count("node", "synset", "feat") == NUM_SYNSETS
    starts = arrays["synset_feat_indptr"]
    for node, row in zip(ids.tolist(), rows, strict=True):
        words = arrays["synset_feat_indices"][starts[node] : starts[node + 1]]
        expected = torch.zeros(2048, dtype=torch.uint8)
        expected[words.tolist()] = 1
        assert torch.equal(row, expected)
    whole = dataset.feature.read("node", "synset", "feat")
    assert np.count_nonzero(whole.numpy().view(bool)) == len(arrays["synset_feat_indices"])


def test_the_split_covers_each_synset_once_with_its_label(dataset: Dataset, arrays: dict[str, np.ndarray]) -> None:
    parts = [dataset.train_set, dataset.validation_set, dataset.test_set]
    assert [len(part) for part in parts] == [70_595, 23_532, 23_532]
    seeds, labels = (torch.cat(values) for values in zip(*map(seeds_and_labels, parts), strict=True))
    assert torch.equal(seeds.sort().values, torch.arange(NUM_SYNSETS))
    assert labels.dtype == seeds.dtype == torch.int64
    assert np.array_equal(labels, arrays["synset_label"][seeds])
    assert len(dataset.all_nodes_set) == NUM_SYNSETS + NUM_WORDS


def test_it_is_a_task_with_metadata_and_the_licence_lies_beside_the_data(dataset: Dataset) -> None:
    assert dataset.name == dataset.dataset_name == "wordnet"
    assert dataset.metadata["num_classes"] == len(dataset.metadata["class_names"]) == 45
    assert dataset.metadata["class_names"][5] == "noun.animal"
    assert dataset.metadata["num_nodes"] == dataset.graph.num_nodes
    assert isinstance(dataset.graph.num_edges, dict)
    assert set(dataset.metadata["edge_types"]) == set(dataset.graph.num_edges)
    assert int(seeds_and_labels(dataset.test_set)[1].max()) < 45
    (task,) = dataset.tasks
    parts = dataset.train_set, dataset.validation_set, dataset.test_set, dataset.metadata
    assert (task.train_set, task.validation_set, task.test_set, task.metadata) == parts
    text = (FOLDER / "WORDNET-LICENSE.txt").read_text()
    assert "WordNet 3.0 Copyright 2006 by Princeton University." in text


def test_a_data_set_is_printed_with_its_shapes(dataset: Dataset) -> None:
    text = repr(dataset)
    assert "  train_set={'synset': {'seeds': int64[70595], 'labels': int64[70595]}},\n" in text
    assert len(text) < 600
