"""Predict which of 45 fields, such as noun.food or verb.motion, each meaning in WordNet belongs to.

The inputs are the words of a meaning's (synset's) definition and its neighbours in the graph. The model is a two-layer
GraphSAGE (Hamilton and others, NeurIPS 2017) with separate weights for each relation, in plain PyTorch. It is trained
twice, the second time with fan-outs of 0, so that it only sees definitions. The difference shows what edges contribute.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

import graphfeed as gf


class SAGELayer(nn.Module):
    """A linear map of a node's vector plus, for each relation, a linear map of its neighbours' mean."""

    def __init__(self, relations: Sequence[str], in_size: int, out_size: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_size, out_size)
        self.neighbors = nn.ModuleDict({relation: nn.Linear(in_size, out_size, bias=False) for relation in relations})

    def forward(self, hop: gf.SampledSubgraph, h: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the vectors of the hop's columns; `h` has those of its rows, whose first ones are the columns."""
        assert isinstance(hop.original_column_node_ids, dict)
        assert isinstance(hop.sampled_csc, dict)
        columns = hop.original_column_node_ids
        out = {kind: self.own(h[kind][: len(ids)]) for kind, ids in columns.items()}
        for relation, csc in hop.sampled_csc.items():
            source, _, destination = relation.split(":")
            degrees = csc.indptr.diff()
            targets = torch.arange(len(degrees)).repeat_interleave(degrees)
            messages = self.neighbors[relation](h[source].index_select(0, csc.indices))
            shares = messages / degrees[targets].unsqueeze(1)
            out[destination] = out[destination].index_add(0, targets, shares)
        return out


class SAGE(nn.Module):
    """A bag of words followed by two layers. Word nodes have no features and start as zero vectors."""

    def __init__(self, dataset: gf.Dataset, hidden_size: int = 64) -> None:
        super().__init__()
        relations = dataset.metadata["edge_types"]
        (num_columns,) = dataset.feature.size("node", "synset", "feat")
        self.words = nn.EmbeddingBag(num_columns, hidden_size, mode="sum")
        self.inner = SAGELayer(relations, hidden_size, hidden_size)
        self.outer = SAGELayer(relations, hidden_size, dataset.metadata["num_classes"])
        nn.init.normal_(self.words.weight, std=0.1)

    def forward(self, batch: gf.MiniBatch) -> Tensor:
        """Return the scores of each seed's classes."""
        assert batch.node_features
        assert batch.sampled_subgraphs
        assert isinstance(batch.input_nodes, dict)
        feat = batch.node_features["synset", "feat"]
        # Equals a linear layer on feat.float(), but skips the zeros: only about 6 of 2,048 columns are ones.
        rows, columns = feat.nonzero(as_tuple=True)
        h: dict[str, Tensor] = {
            "synset": self.words(columns, torch.searchsorted(rows, torch.arange(len(feat)))),
            "word": torch.zeros(len(batch.input_nodes["word"]), self.words.embedding_dim),
        }
        for layer, hop in zip((self.inner, self.outer), batch.sampled_subgraphs, strict=True):
            h = layer(hop, {kind: vectors.relu() for kind, vectors in h.items()})
        return h["synset"]


def make_pipe(
    source: gf.Datapipe, graph: gf.SamplingGraph, feature: gf.FeatureStore, fanouts: Sequence[int]
) -> gf.Datapipe:
    """Return a pipeline of seeds with labels, sampled neighbours and features; the graph may be partitioned."""
    pipe = source.sample_neighbor(graph, fanouts=fanouts)
    return pipe.fetch_feature(feature, node_feature_keys={"synset": ["feat"]})


def make_loader(
    dataset: gf.Dataset, items: gf.ItemSet | gf.HeteroItemSet, fanouts: Sequence[int], batch_size: int
) -> gf.DataLoader:
    """Return a loader, which shuffles the training set."""
    source = gf.ItemSampler(items, batch_size=batch_size, shuffle=items is dataset.train_set)
    return gf.DataLoader(make_pipe(source, dataset.graph, dataset.feature, fanouts), seed=0)


class Speed:
    """Measures mini-batches and sampled edges per second of an epoch, with a transient progress bar."""

    def __init__(self, loader: gf.DataLoader, title: str) -> None:
        self.loader = loader
        self.title = title
        self.edges = 0
        self.seconds = 0.0

    def __iter__(self) -> Iterator[Any]:
        """Yield the mini-batches of the next epoch."""
        start = time.perf_counter()
        for batch in tqdm(self.loader, desc=self.title, leave=False):
            for hop in batch.sampled_subgraphs:
                self.edges += sum(len(csc.indices) for csc in hop.sampled_csc.values())
            yield batch
        self.seconds = time.perf_counter() - start

    def __str__(self) -> str:
        edges = f" with {self.edges:,} sampled edges" if self.edges else ""
        return f"{self.title}: {len(self.loader)} mini-batches{edges} in {self.seconds:.1f} s"


def train(net: nn.Module, batches: Iterable[Any], optimizer: torch.optim.Optimizer) -> None:
    """Train for one epoch."""
    net.train()
    for batch in batches:
        loss = functional.cross_entropy(net(batch), batch.labels["synset"])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@torch.no_grad()
def evaluate(net: SAGE, loader: gf.DataLoader, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return how many seeds of each class there are, and of how many the model predicts it."""
    net.eval()
    seen, right = torch.zeros(2, num_classes, dtype=torch.int64)
    for batch in loader:
        labels = batch.labels["synset"]
        hits = labels[net(batch).argmax(1) == labels]
        seen += labels.bincount(minlength=num_classes)
        right += hits.bincount(minlength=num_classes)
    return seen, right


def run(dataset: gf.Dataset, fanouts: Sequence[int], options: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """Train a new model, and return the number of test nodes of each class, and how many it predicts."""
    torch.manual_seed(0)
    net, num_classes = SAGE(dataset), dataset.metadata["num_classes"]
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    parts = (dataset.train_set, dataset.validation_set, dataset.test_set)
    with ExitStack() as stack:
        training, validation, test = (
            stack.enter_context(make_loader(dataset, items, fanouts, options.batch_size)) for items in parts
        )
        for epoch in range(1, options.epochs + 1):
            speed = Speed(training, f"  Epoch {epoch}")
            train(net, speed, optimizer)
            seen, right = evaluate(net, validation, num_classes)
            print(f"{speed}. Of the validation nodes, {right.sum() / seen.sum():.0%} are correct.")
        return evaluate(net, test, num_classes)


def show_loader(loader: gf.DataLoader) -> None:
    """Print where each stage runs, and the speed of the loader without a model."""
    print("\nThis is what runs where. Workers sample neighbours and fetch features ahead of the training:\n")
    print(loader.explain())
    print("\nThe first mini-batch compiles the kernels, unless they are on disk.")
    next(iter(loader))
    speed = Speed(loader, "The loader alone")
    for _ in speed:
        pass
    print(f"{speed}.")


def guess(dataset: gf.Dataset) -> float:
    """Return the test accuracy of always predicting the most frequent training class."""
    _, train_labels = dataset.train_set[:]["synset"]
    _, test_labels = dataset.test_set[:]["synset"]
    return float((test_labels == train_labels.mode().values).float().mean())


def show_fields(names: Sequence[str], seen: Tensor, with_edges: Tensor, without_edges: Tensor) -> None:
    """Print the fields that edges help most, of those with at least 100 test nodes."""
    gain = ((with_edges - without_edges) / seen.clamp(min=1)).masked_fill(seen < 100, -1)
    for place in gain.argsort(descending=True)[:5].tolist():
        if gain[place] > 0:
            shares = [float(right[place] / seen[place]) for right in (without_edges, with_edges)]
            print(f"  {names[place]:20} {shares[0]:4.0%} -> {shares[1]:4.0%}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare a model that sees edges with one that does not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=512)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the model is small; the loader's workers use the other cores
    dataset = gf.datasets.wordnet()
    names, relations = dataset.metadata["class_names"], dataset.metadata["edge_types"]
    print(
        f"WordNet is a dictionary and a graph of {len(relations)} relations. Each of its meanings belongs to one of "
        f"{len(names)} fields, such as noun.food.\nA GraphSAGE learns to predict the field from the words of the "
        "definition, and from sampled neighbours."
    )
    with make_loader(dataset, dataset.train_set, [10, 10], options.batch_size) as loader:
        show_loader(loader)
    print("\nTraining with 10 neighbours per node and hop:")
    seen, with_edges = run(dataset, [10, 10], options)
    print("\nTraining the same model without neighbours, on definitions alone:")
    _, without_edges = run(dataset, [0, 0], options)
    shares = [float(right.sum() / seen.sum()) for right in (with_edges, without_edges)]
    print("\nShare of the test nodes whose field is predicted, without and with edges; edges help these fields most:")
    show_fields(names, seen, with_edges, without_edges)
    print(
        f"\nOf all test nodes, {shares[0]:.0%} are correct with edges, {shares[1]:.0%} without edges, and "
        f"{guess(dataset):.0%} by always guessing the most frequent field."
    )


if __name__ == "__main__":
    main()
