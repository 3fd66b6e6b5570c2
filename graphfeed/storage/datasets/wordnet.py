"""WordNet 3.0, copyright 2006 by Princeton University; the licence is in a file next to this one."""

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.storage.datasets.item_set import HeteroItemSet, ItemSet
from graphfeed.storage.datasets.on_disk_dataset import Dataset
from graphfeed.storage.features.feature import TorchBasedFeature
from graphfeed.storage.features.feature_store import BasicFeatureStore
from graphfeed.storage.graph.build import from_coo

Arrays: TypeAlias = dict[str, NDArray[Any]]


def wordnet() -> Dataset:
    """Return WordNet 3.0. The task is to predict which of 45 subject fields a meaning (synset) belongs to.

    The 117,659 synsets are joined by 18 relations, such as `synset:hypernym:synset`. The 147,306 words are joined to
    their synsets by `word:names:synset`. Together these are 442,343 edges. Each relation also exists in reverse, such
    as `synset:rev_names:word`. The feature ("node", "synset", "feat") has 2,048 columns of uint8 (240 MB). A column is
    1 if a word of the definition was hashed to it. Words have no features. The split is random, 60/20/20.

    Example:
        >>> dataset = wordnet()
        >>> dataset.graph
        FusedCSCSamplingGraph(num_nodes=264965, num_edges=884686, node_types=['synset', 'word'], edge_types=38)
        >>> len(dataset.train_set), dataset.metadata["num_classes"]
        (70595, 45)
    """
    with np.load(Path(__file__).with_name("wordnet.npz"), allow_pickle=False) as file:
        arrays = dict(file)
    num_nodes = {node_type: int(arrays[f"num_nodes_{node_type}"]) for node_type in ("synset", "word")}
    edges = wordnet_edges(arrays)
    feature = TorchBasedFeature(wordnet_feature(arrays))
    class_names = tuple(arrays["label_name"].tolist())
    return Dataset(
        name="wordnet",
        graph=from_coo(edges, num_nodes),
        feature=BasicFeatureStore({("node", "synset", "feat"): feature}),
        train_set=wordnet_items(arrays, "train"),
        validation_set=wordnet_items(arrays, "val"),
        test_set=wordnet_items(arrays, "test"),
        all_nodes_set=HeteroItemSet(
            {node_type: ItemSet(count, names="seeds") for node_type, count in num_nodes.items()}
        ),
        metadata={
            "num_classes": len(class_names),
            "class_names": class_names,
            "num_nodes": num_nodes,
            "edge_types": tuple(edges),
        },
    )


def wordnet_edges(arrays: Arrays) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return the sources and destinations by edge type. Each relation is followed by its reverse."""
    edges = {}
    for name, values in arrays.items():
        if not name.endswith("__src"):
            continue
        # Arrays are named source, relation and destination with `__` between them.
        relation, source, destination, _ = name.split("__")
        sources = torch.from_numpy(values)
        destinations = torch.from_numpy(arrays[f"{name.removesuffix('src')}dst"])
        edges[f"{source}:{relation}:{destination}"] = (sources, destinations)
        edges[f"{destination}:rev_{relation}:{source}"] = (destinations, sources)
    return edges


def wordnet_feature(arrays: Arrays) -> torch.Tensor:
    num_rows, num_columns = arrays["synset_feat_shape"]
    rows = np.repeat(np.arange(num_rows), np.diff(arrays["synset_feat_indptr"]))
    dense = np.zeros((num_rows, num_columns), dtype=np.uint8)
    dense[rows, arrays["synset_feat_indices"]] = 1
    return torch.from_numpy(dense)


def wordnet_items(arrays: Arrays, part: str) -> HeteroItemSet:
    ids = torch.from_numpy(arrays[f"{part}_idx"]).to(torch.int64)
    labels = torch.from_numpy(arrays["synset_label"]).to(torch.int64)
    return HeteroItemSet({"synset": ItemSet((ids, labels[ids]), names=("seeds", "labels"))})
