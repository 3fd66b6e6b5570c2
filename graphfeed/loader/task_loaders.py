"""The training, validation and test loaders of a task."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from graphfeed.datapipes import Datapipe, ItemSampler
from graphfeed.loader.dataloader import DataLoader
from graphfeed.ops.arguments import brief, checked
from graphfeed.storage import (
    FeatureStore,
    HeteroItemSet,
    ItemSet,
    SamplingGraph,
    SamplingRequest,
    Task,
    TemporalQuery,
)
from graphfeed.storage.graph import to_type_dict


@checked
def loaders(
    task: Task,
    graph: SamplingGraph,
    fanouts: Sequence[Any],
    batch_size: int,
    features: FeatureStore | None = None,
    negative_ratio: int | None = None,
    reverse_etypes: Mapping[str, str | None] | None = None,
    time_attr: str = "time",
    **options: Any,
) -> tuple[DataLoader | Any, DataLoader | Any, DataLoader | Any]:
    """Return the training, validation and test loaders of a task; None for each item set that the task does not have.

    Each loader runs the stages `ItemSampler` (shuffled for training), `sample_neighbor` and `fetch_feature`, as
    `loader.explain(rewritten=False)` prints. Draws differ between epochs: call `set_epoch(0)` before each validation or
    test, so that only changes of the model affect the metrics.

    Items whose seeds are edges, shape (N, 2), also get `sample_uniform_negative` unless they have labels, and after the
    sampler `exclude_seed_edges`, so that no sampled subgraph contains the edges to predict. In a graph without types,
    reverse edges are excluded as well.

    Items for training with lists of `destinations` get `sample_listed_pair`, with one positive for each source. Those
    for validation and testing are the sources alone. Tasks of RelBench are sampled as it does: what has the time of a
    seed is visible, and trees are disjoint.

    Items with a `timestamp` get `temporal_sample_neighbor` instead of `sample_neighbor`: only what existed before the
    timestamp of a seed is sampled.

    Args:
        task, graph: The items and the graph to sample, such as `dataset.tasks[0]` and `dataset.graph`.
        fanouts: As for `NeighborSampler`, with the hop at the seeds last.
        batch_size: Number of items in a mini-batch.
        features: A feature store, such as `dataset.feature`. All of its node and edge features are fetched.
        negative_ratio: Number of negatives for each edge without a label, or for each source; None means 1.
        reverse_etypes: The reverse type of each seed edge type, whose edges are excluded as well; None for a type
            without one. By default, those in the task's metadata, where `graphfeed.ingest` puts types with
            `reverse_of`.
        time_attr: Name of the node or edge attribute of the graph, or of both, with the times for items that have a
            `timestamp`. Data sets of `graphfeed.ingest` call it "time".
        **options: As for `DataLoader`, such as `num_workers` and `seed`.

    Raises:
        ValueError: Items have timestamps, but the graph has no times; there are both node and edge items; a seed edge
            type is missing in `reverse_etypes`; or node items come with edge-only arguments.
        KeyError: A type in `reverse_etypes` is unknown to both the graph and the items.

    Example:
        >>> from graphfeed import datasets
        >>> data = datasets.wordnet()
        >>> train, validation, test = loaders(data.tasks[0], data.graph, [5], 1024, data.feature, num_workers=0)
        >>> len(train), len(validation), len(test)
        (69, 23, 23)
    """
    reverse_etypes = task.metadata.get("reverse_etypes") if reverse_etypes is None else reverse_etypes
    sampling = task.metadata.get("sampling", {})
    sample = partial(
        sample_items, partial(sample_before, graph, fanouts, time_attr, sampling), graph, batch_size, negative_ratio,
        reverse_etypes, task.metadata.get("destination_type"),
    )  # fmt: skip

    def load(items: Any, shuffle: bool = False) -> DataLoader | None:
        if not items:
            return None
        pipe = sample(items, shuffle)
        if features is not None:
            pipe = pipe.fetch_feature(features, names_in(features, "node"), names_in(features, "edge"))
        return DataLoader(pipe, **options)

    return load(task.train_set, shuffle=True), load(task.validation_set), load(task.test_set)


def sample_items(
    sample_neighbors: Callable[[Datapipe, Sequence[str | None]], Datapipe],
    graph: SamplingGraph,
    batch_size: int,
    negative_ratio: int | None,
    reverse_etypes: Mapping[str, str | None] | None,
    destination_type: str | None,
    items: ItemSet | HeteroItemSet,
    shuffle: bool,
) -> Datapipe:
    """Return the pipeline from the items to the sampled subgraphs, without features."""
    names = items.names or ("seeds",)
    pipe: Datapipe = ItemSampler(items, batch_size, shuffle=shuffle)
    sets = {None: items} if isinstance(items, ItemSet) else items.by_type
    if shuffle and "destinations" in names:
        pipe = pair_with_listed(
            pipe, graph, list(sets), destination_type, 1 if negative_ratio is None else negative_ratio
        )
        return sample_neighbors(pipe, names)
    if destination_type is not None:
        return sample_neighbors(pipe, names)
    of_edges = [kind for kind, own in sets.items() if has_edges(own, names)]
    if not of_edges:
        for name, given in (("negative_ratio", negative_ratio), ("reverse_etypes", reverse_etypes)):
            if given is not None:
                raise ValueError(f"{name} is for items that are edges, but task has items that are nodes; leave it out")
        return sample_neighbors(pipe, names)
    of_nodes = [kind for kind, own in sets.items() if len(own) and kind not in of_edges]
    if of_nodes:
        raise ValueError(
            f"task has node items, {brief(of_nodes)}, as well as edge items, {brief(of_edges)}; pass a separate task "
            "to loaders() for each"
        )
    if "labels" not in names:
        pipe = pipe.sample_uniform_negative(graph, 1 if negative_ratio is None else negative_ratio)
    both_ways = reverse_etypes is not None or isinstance(items, ItemSet)
    pipe = sample_neighbors(pipe, names)
    # Also in temporal sampling: negatives are pairs without an edge, so an earlier edge would tell positives apart.
    return pipe.exclude_seed_edges(both_ways, reverse_etypes)


def pair_with_listed(
    pipe: Datapipe, graph: SamplingGraph, types: list[str | None], destination_type: str | None, ratio: int
) -> Datapipe:
    """Add the stage that pairs the sources with destinations from their lists."""
    if len(types) != 1:
        raise ValueError(f"task has lists of destinations for several types of sources, {brief(types)}; give one type")
    (source,), counts = types, to_type_dict(graph.num_nodes)
    if destination_type not in counts or (source is None) != (destination_type is None):
        raise ValueError(
            f"task has lists of destinations, but destination_type in its metadata is {destination_type!r}; name a "
            f"node type of {list(counts)}"
        )
    edge_type = None if source is None else f"{source}:target:{destination_type}"
    return pipe.sample_listed_pair(edge_type, counts[destination_type], ratio)


def sample_before(
    graph: SamplingGraph,
    fanouts: Sequence[Any],
    time_attr: str,
    sampling: Mapping[str, Any],
    pipe: Datapipe,
    names: Sequence[str | None],
) -> Datapipe:
    """Add the sampler: by time if the items have timestamps."""
    if "timestamp" not in names:
        return pipe.sample_neighbor(graph, fanouts, **{key: own for key, own in sampling.items() if key != "inclusive"})
    found: dict[str, Any] = {}
    for argument in ("node_timestamp_attr_name", "edge_timestamp_attr_name"):
        named: dict[str, Any] = {argument: time_attr}
        with suppress(KeyError):
            graph.validate(SamplingRequest([], temporal=TemporalQuery(**named)))
            found |= named
    if not found:
        raise ValueError(
            f"task has items with a timestamp, but neither nodes nor edges of the graph have an attribute "
            f"{time_attr!r} with times; name it in time_attr, or leave timestamp out of the items"
        )
    return pipe.temporal_sample_neighbor(graph, fanouts, **found, **sampling)


def has_edges(items: ItemSet, names: Sequence[str | None]) -> bool:
    seeds = dict(zip(names, items.members, strict=False)).get("seeds")
    return isinstance(seeds, torch.Tensor) and seeds.shape[1:] == (2,)


def names_in(features: FeatureStore, domain: str) -> Any:
    """Return the names of a store's features of nodes or of edges, by type if they have types."""
    by_type: dict[str | None, list[str]] = {}
    keys = features.keys()
    for _, kind, name in (key for key in keys if key[0] == domain):
        by_type.setdefault(kind, []).append(name)
    return by_type.get(None, by_type) or None
