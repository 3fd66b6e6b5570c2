"""Train on a partitioned WordNet graph: each process stores one partition of the graph and of the features.

`make demo-distributed` starts two processes with torchrun. The model and the task are those of `wordnet_sage.py`. Only
the graph and the feature of the pipeline differ. The printed digests show that its mini-batches are bit-identical to
those of one process with the whole graph.
"""

import argparse
import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import distributed
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import graphfeed as gf
from examples.wordnet_sage import SAGE, make_pipe, train
from graphfeed.distributed import PartitionedFeature, PartitionedGraph, assign_nodes, cut_graph, cut_rows


def open_part(dataset: gf.Dataset) -> tuple[PartitionedGraph, gf.BasicFeatureStore]:
    """Return the partitioned graph and feature; this rank owns a contiguous range of ids of each node type."""
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    part = cut_graph(dataset.graph, assign_nodes(dataset.graph, world_size, "range"), rank)
    book = part.book_of("synset")
    rows = cut_rows(dataset.feature.read("node", "synset", "feat"), book, rank)
    return PartitionedGraph(part), gf.BasicFeatureStore({("node", "synset", "feat"): PartitionedFeature(rows, book)})


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a mini-batch, in a fixed order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_of(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_of(part)
    elif isinstance(value, (gf.MiniBatch, gf.SampledSubgraph, gf.CSCFormatBase)):
        yield from tensors_of(vars(value))


def digest(batch: gf.MiniBatch) -> int:
    """Return a 63-bit hash of all tensors of a mini-batch and of its key."""
    state = hashlib.sha256(repr(batch.key).encode())
    for tensor in tensors_of(batch):
        state.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        state.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return int.from_bytes(state.digest()[:8], "little") >> 1


class Digests:
    """Iterates over mini-batches, counts them, and sums up their digests."""

    def __init__(self, batches: Iterable[gf.MiniBatch]) -> None:
        self.batches = batches
        self.sums = torch.zeros(2, dtype=torch.int64)

    def __iter__(self) -> Iterator[gf.MiniBatch]:
        """Yield the mini-batches."""
        for batch in self.batches:
            self.sums += torch.tensor([1, digest(batch)])
            yield batch

    def __str__(self) -> str:
        count, total = self.sums.tolist()
        return f"{count} mini-batches with digest {total % (1 << 64):016x}"


def accuracy(net: torch.nn.Module, loader: gf.DataLoader) -> float:
    """Return the accuracy over the seeds of all ranks."""
    net.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for batch in loader:
            hits = net(batch).argmax(1) == batch.labels["synset"]
            counts += torch.tensor([float(hits.sum()), len(hits)])
    distributed.all_reduce(counts)
    return float(counts[0] / counts[1])


def compare_digests(found: Digests, alone: gf.DataLoader, epoch: int) -> str:
    """Describe the digests of all ranks' mini-batches, and those of one process with the whole graph.

    Raises:
        RuntimeError: The digests differ.
    """
    distributed.all_reduce(found.sums)
    wanted = Digests(alone)
    if distributed.get_rank() == 0:
        alone.set_epoch(epoch)
        for _ in wanted:
            pass
        if str(found) != str(wanted):
            raise RuntimeError(f"the digests differ: {found} on the partitioned graph, {wanted} in one process")
    return f"in {distributed.get_world_size()} parts {found}, in one process {wanted}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on a partitioned graph, and compare the mini-batches with those of one process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=1024)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    dataset = gf.datasets.wordnet()
    graph, feature = open_part(dataset)

    def load(items: Any, workers: int, *, shuffle: bool = False) -> gf.DataLoader:
        source = gf.DistributedItemSampler(items, options.batch_size, shuffle=shuffle)
        return gf.DataLoader(make_pipe(source, graph, feature, [10, 10]), workers, seed=0)

    whole = gf.ItemSampler(dataset.train_set, options.batch_size, shuffle=True)
    alone = gf.DataLoader(make_pipe(whole, dataset.graph, dataset.feature, [10, 10]), 0, seed=0)
    torch.manual_seed(0)
    net = DistributedDataParallel(SAGE(dataset), find_unused_parameters=True)  # the last layer ignores words
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with load(dataset.train_set, 1, shuffle=True) as training, load(dataset.test_set, 1) as test:
        for epoch in range(options.epochs):
            start = time.perf_counter()
            batches = Digests(training)
            with Join([net]):  # ranks may differ by one mini-batch
                train(net, batches, optimizer)
            seconds = time.perf_counter() - start
            text = compare_digests(batches, alone, epoch)
            score = accuracy(net.module, test)
            if distributed.get_rank() == 0:
                print(f"epoch {epoch + 1}: {seconds:.1f} s; test accuracy {score:.2f}; {text}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
