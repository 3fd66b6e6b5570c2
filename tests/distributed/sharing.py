"""What each rank runs where ranks share memory, or can't."""

import gc
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import distributed

import graphfeed as gf
from graphfeed.distributed import PartitionedFeature, PartitionedGraph, Peers, cut_rows, edge_positions
from graphfeed.distributed.one_machine import shared_columns
from graphfeed.distributed.ranks.peers import rank_and_size
from graphfeed.ops.memory.mappings import TABLE, read_regions
from graphfeed.storage.features import feature_cache
from graphfeed.storage.graph import ORIGINAL_EDGE_ID
from graphfeed.storage.memory.mapped_file import regions_of
from tests.digests import digest
from tests.distributed import equal_pipelines
from tests.distributed.equal_pipelines import assign, feature_in_parts
from tests.distributed.graphs import plain
from tests.test_survival import belongings

VALUES = torch.arange(400.0).view(100, 4)


def share_all() -> dict[str, Any]:
    """Return what came of each case."""
    found = {
        "leaves": leave_nothing(),
        "ids": [sample_with_ids(kind) for kind in ("none", "any")],
        "several graphs": make_several_graphs(),
        "weights": sample_by_weight(),
        "memory lacks": sample_elsewise("available_memory", lambda: 0.0),
        "can't be opened": sample_elsewise("open_handle", refuse),
        "attributes": disagree_on_attributes(),
        "update": update_rows(),
        "disk": read_from_some_disks(),
        "cache": [read_often(0), read_often(1 << 14), read_often(1 << 14, share_memory=True)],
    }
    distributed.barrier()
    return found


def with_ids(kind: str) -> gf.FusedCSCSamplingGraph:
    """Return a graph whose edges have any ids, or none but their positions."""
    graph = plain()
    if kind == "any":
        return graph
    attributes = {name: rows for name, rows in graph.edge_attributes.items() if name != ORIGINAL_EDGE_ID}
    return gf.FusedCSCSamplingGraph(**{**graph.fields(), "edge_attributes": attributes})


def digests_of(graph: gf.SamplingGraph, **options: Any) -> list[str]:
    """Return digests of an epoch."""
    pipe: gf.Datapipe = gf.ItemSampler(gf.ItemSet(100, names="seeds"), batch_size=30, shuffle=True)
    pipe = pipe.sample_neighbor(graph, [3, 4], **options)
    with gf.DataLoader(pipe, 0, seed=rank_and_size()[0]) as loader:
        return [digest(batch) for batch in loader]


in_parts = partial(equal_pipelines.in_parts, how="random")
"""Returns a graph of which this rank has a part."""


def sample_with_ids(kind: str) -> list[bool]:
    """Return whether mini-batches are those of the whole graph, and whether ids take memory."""
    whole = with_ids(kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edge_positions, "PIECE", 50)
        graph = in_parts(whole)
        equal = digests_of(graph) == digests_of(whole)
    distributed.barrier()
    return [equal, ORIGINAL_EDGE_ID in graph._here.columns.edge_attributes]


def make_several_graphs() -> list[bool]:
    """Return whether graphs over one part share columns, and all mini-batches are right, also of a part of its own."""
    whole = with_ids("any")
    first = in_parts(whole)
    second = PartitionedGraph(first.part)
    third = PartitionedGraph(replace(first.part) if rank_and_size()[0] == 1 else first.part)
    wanted = digests_of(whole, prob_name="weight")
    equal = all(digests_of(graph, prob_name="weight") == wanted for graph in (second, third, first))
    distributed.barrier()
    return [equal, second._here is first._here, third._here is first._here]


def sample_by_weight() -> list[bool]:
    """Return whether mini-batches are those of the whole graph, and whether the sums of weights are shared."""
    whole = with_ids("any")
    graph = in_parts(whole)
    equal = digests_of(graph, prob_name="weight") == digests_of(whole, prob_name="weight")
    sums = graph._here.columns.cumulative_weights("weight")
    in_block = [region.shared for region in regions_of(sums, read_regions(TABLE))] == [True]
    distributed.barrier()
    return [equal, in_block]


def refuse(*_: Any) -> Any:
    """Do as a system that lets no process open another's memory."""
    raise PermissionError


def sample_elsewise(name: str, replacement: Any) -> list[Any]:
    """Return whether mini-batches are those of the whole graph, how often others were asked, and what was warned of."""
    whole, peers = with_ids("places"), Peers()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patch.setattr(shared_columns, name, replacement)
        equal = digests_of(in_parts(whole, peers=peers)) == digests_of(whole)
        distributed.barrier()
    peers.close()
    peers.join()
    return [equal, peers.traffic.exchanges, [str(warning.message) for warning in caught]]


def disagree_on_attributes() -> str:
    """Return the error where one rank has an attribute that the others don't have."""
    graph = in_parts(with_ids("any"))
    if rank_and_size()[0] == 1:
        graph.part.columns.add_edge_attribute("more", torch.zeros(graph.part.columns.total_num_edges))
    distributed.barrier()  # as others may sample, and copy the edges of this part, before it is edited
    try:
        graph.in_subgraph(torch.arange(100))
    except (RuntimeError, ValueError) as error:
        text = str(error)
    distributed.barrier()
    return text


def update_rows() -> list[Any]:
    """Return a row of the last rank on all ranks, before and after it was updated there."""
    rank, world_size = rank_and_size()
    peers = Peers()
    feature = feature_in_parts(VALUES, "range", 0, peers)
    found = [feature.read(torch.tensor([99, 0, 99])).tolist()]
    distributed.barrier()
    if rank == world_size - 1:
        feature.rows.update(torch.full((1, 4), -1.0), feature.book.offsets_of(torch.tensor([99])))
    distributed.barrier()
    found.append(feature.read(torch.tensor([99]))[0].tolist())
    distributed.barrier()
    exchanges = peers.traffic.exchanges
    peers.close()
    peers.join()
    return [*found, exchanges]


class Elsewhere(gf.TorchBasedFeature):
    """Rows that don't lie in memory, as far as anybody knows."""

    def may_read_in_threads(self) -> bool:
        """Tell that they don't."""
        return False


def read_from_some_disks() -> bool:
    """Return whether rows are right where only some ranks have theirs in memory."""
    rank = rank_and_size()[0]
    book = assign(100, "random")
    own = cut_rows(VALUES, book, rank)
    feature = PartitionedFeature(Elsewhere(own) if rank == 0 else own, book)
    ids = torch.tensor([5, 99, 5, 0, *range(100)])
    equal = all(torch.equal(feature.read(given), VALUES[given]) for given in (ids, ids.int(), ids[:0]))
    distributed.barrier()
    return equal


def read_often(cache_bytes: int, share_memory: bool = False) -> dict[str, Any]:
    """Return whether rows are right in ten reads of much the same ids, and what this rank sent and looked up."""
    peers = Peers(share_memory=share_memory)
    in_parts = feature_in_parts(VALUES, "random", 0, peers)
    feature: Any = gf.cpu_cached_feature(in_parts, cache_bytes) if cache_bytes else in_parts
    in_parts.read(torch.arange(0))  # asks where rows lie
    exchanges, equal, remote = peers.traffic.exchanges, True, 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature_cache, "READ_BYTES", 4 * VALUES[0].nbytes)
        for number in range(10):
            ids = torch.tensor([*range(60), 90 + number])
            equal &= torch.equal(feature.read(ids), VALUES[ids])
            remote += int((in_parts.book.owners_of(ids) != peers.rank).sum())
    distributed.barrier()
    peers.close()
    peers.join()
    looked_up = feature._cache.hits + feature._cache.misses if cache_bytes else None
    sent = {"exchanges": peers.traffic.exchanges - exchanges, "bytes": peers.traffic.bytes_sent}
    return {"equal": equal, **sent, "remote": remote, "looked_up": looked_up}


def leave_nothing() -> list[int]:
    """Return how many descriptors, threads and mappings there are more after ranks shared memory."""

    def share() -> None:
        peers = Peers()
        graph, feature = in_parts(plain(), peers=peers), feature_in_parts(VALUES, "random", 0, peers)
        digests_of(graph)
        feature.read(torch.arange(100))
        assert belongings()[2] > 0
        peers.close()
        peers.join()

    share()
    distributed.barrier()
    before = belongings()
    share()
    gc.collect()
    return [after - own for after, own in zip(belongings(), before, strict=True)]
