import pickle
import threading
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import (
    PartBook,
    PartitionedFeature,
    PartitionedGraph,
    Peers,
    assign_nodes,
    cut_rows,
    open_part,
    write_partition,
)
from graphfeed.storage.features import PlannedRows
from graphfeed.testing import limits
from tests.kinds import joint
from tests.kinds.digests import digests
from tests.kinds.equal_pipelines import assign, feature_in_parts
from tests.kinds.joint import in_threads
from tests.kinds.refusals import check_refused

VALUES = torch.arange(12.0).view(6, 2)
BOOK = PartBook.from_bounds([0, 6])


def test_rows_are_read_by_id_and_may_be_any_feature() -> None:
    feature = PartitionedFeature(VALUES, BOOK)
    ids = torch.tensor([5, 0, 5])
    assert torch.equal(feature.read(ids), VALUES[ids])
    assert torch.equal(feature.read(), VALUES)
    assert (feature.count(), feature.size(), feature.dtype) == (6, torch.Size([2]), torch.float32)
    cached = gf.cpu_cached_feature(gf.TorchBasedFeature(VALUES), 1 << 10)
    assert torch.equal(PartitionedFeature(cached, BOOK).read(torch.tensor([3])), VALUES[3:4])


def test_ranks_with_other_books_or_rows_get_an_error_and_no_rows_of_other_ids() -> None:
    books = [PartBook.from_assignment(torch.tensor(parts)) for parts in ([0, 1, 0, 1, 0, 1], [0, 1, 1, 0, 0, 1])]
    same, own_rows = r"; all ranks must open parts of one partition", [VALUES, VALUES.int()]

    def work(rank: int, peers: Peers) -> None:
        for book, rows, said in (
            (books[rank], VALUES, "assignment of 'feature 0' is .*"),
            (books[0], own_rows[rank], r"""rows of 'feature 1' is "float32\[6, 2\]" on ranks \[0\], and "int32.*"""),
        ):
            feature = PartitionedFeature(cut_rows(rows, book, rank), book, peers)
            with pytest.raises(ValueError, match=said + same):
                feature.read(torch.tensor([0, 5, 1]))

    in_threads(2, work)


ROWS = torch.arange(400.0).view(100, 4)


class Elsewhere(gf.TorchBasedFeature):
    """Rows that are not known to be in memory."""

    def may_read_in_threads(self) -> bool:
        """Return False."""
        return False


@pytest.mark.parametrize("each", [1, 2])
def test_rows_on_disk_are_read_by_their_owners_and_what_these_update_is_seen_by_all(each: int) -> None:
    ids, steps = torch.tensor([5, 99, 5, 0, *range(100)]), threading.Barrier(4, timeout=60)

    def work(rank: int, peers: Peers) -> None:
        book = assign(100, "random", num_parts=4 // each)
        own = cut_rows(ROWS, book, rank // each)
        feature = PartitionedFeature(Elsewhere(own) if rank == 0 else own.clone(), book, peers)
        for given in (ids, ids.int(), ids[:0]):
            assert torch.equal(feature.read(given), ROWS[given])
        steps.wait()
        if rank // each == int(book.owners_of(ids[1:2])):
            feature.rows.update(torch.full((1, 4), -1.0), book.offsets_of(ids[1:2]))
        steps.wait()
        assert feature.read(ids[1:2]).tolist() == [[-1.0] * 4]

    in_threads(4, work)


def read_often(rank: int, peers: Peers, cache_bytes: int) -> dict[str, int]:
    """Make ten reads of mostly the same ids; return the traffic of this rank."""
    of_peers = feature_in_parts(ROWS, "random", 0, peers)
    feature: Any = gf.cpu_cached_feature(of_peers, cache_bytes) if cache_bytes else of_peers
    of_peers.read(torch.arange(0))  # compares the parts
    exchanges = peers.traffic.exchanges
    for number in range(10):
        ids = torch.tensor([*range(60), 90 + number])
        assert torch.equal(feature.read(ids), ROWS[ids])
    return {"exchanges": peers.traffic.exchanges - exchanges, "bytes": peers.traffic.bytes_sent}


@limits(cache_read_bytes=4 * ROWS[0].nbytes)
def test_rows_that_are_often_read_are_kept_in_a_cache_and_others_are_asked_for_at_once() -> None:
    plain, cached = (in_threads(3, partial(read_often, cache_bytes=size)) for size in (0, 1 << 14))
    sent, sent_with_cache = (sum(found["bytes"] for found in ranks) / 3 for ranks in (plain, cached))
    row_bytes, remote = 4 * 4, 2 / 3
    # Each message has a header, here larger than the rows.
    assert sent - sent_with_cache > 9 * row_bytes * remote * 60 * 0.8
    assert sent_with_cache > row_bytes * remote * (60 + 10)
    assert all(found["exchanges"] <= 10 for found in cached), "more than one for each read"


def test_what_does_not_fit_is_refused_with_what_to_do() -> None:
    feature, two = PartitionedFeature(VALUES, BOOK), PartBook.from_bounds([0, 6, 6])
    check_refused(
        [
            (lambda: PartitionedFeature(VALUES[1:], BOOK), ValueError, "must have the 6 rows of part 0, but has 5"),
            (lambda: PartitionedFeature(gf.TrainableFeature(6, 2), BOOK), TypeError, "can't be cached or partitioned"),
            (lambda: PartitionedFeature(VALUES, two), ValueError, "there are 2 parts, but 1 ranks"),
            (lambda: feature.update(VALUES), NotImplementedError, r"feature\.rows\.update"),
            (lambda: pickle.dumps(feature), TypeError, "worker='thread'"),
        ]
    )


def fetched(kind: str, rank: int, peers: Peers | None) -> gf.Datapipe:
    """Return a pipeline over a partitioned graph and features; of a single rank without peers."""
    whole = joint.GRAPHS[kind]()
    graph, store = joint.parts_of(whole, rank, 1 if peers is None else peers.world_size, peers)
    pipe = gf.ItemSampler(joint.items(whole), 6, shuffle=True).sample_neighbor(graph, [3, 4])
    return pipe.fetch_feature(store, joint.names(whole))


@pytest.mark.parametrize(
    ("kind", "num_workers", "memory_limit"),
    [
        ("plain", 0, None),
        ("typed", 2, None),
        ("plain", 2, 1_700),
        pytest.param("typed", 2, 1_700, marks=pytest.mark.thorough),
    ],
)
def test_windows_ask_for_rows_ahead_and_change_no_mini_batch(
    kind: str, num_workers: int, memory_limit: int | None
) -> None:
    def run(loader: gf.DataLoader) -> list[list[str]]:
        next(iter(loader))  # and leave
        return [digests(loader), digests(loader)]

    expected = run(gf.DataLoader(fetched(kind, 0, None), 0, seed=3))

    def work(rank: int, peers: Peers) -> list[PlannedRows]:
        pipe = fetched(kind, rank, peers)
        with gf.DataLoader(pipe, num_workers, seed=3, window=4, memory_limit=memory_limit) as loader:
            assert run(loader) == expected
            assert "s were spent waiting for other ranks" in loader.explain()
            return [cache for _, cache in loader.list_caches() if isinstance(cache, PlannedRows)]

    for found in in_threads(2, work):
        assert len(found) == (1 if kind == "plain" else 2)
        for rows in found:
            remote = rows.count() - len(rows.feature.rows.read())
            if memory_limit is None:
                assert rows.misses == remote
                assert rows.counts.windows < rows.counts.minibatches / 2
            else:
                assert rows.num_slots < remote < rows.misses


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The graph and the features of `fetched` in two parts on disk."""
    whole = joint.GRAPHS["plain"]()
    rows = gf.TorchBasedFeature(joint.codes(torch.arange(whole.total_num_nodes)))
    store = gf.BasicFeatureStore({("node", None, "code"): rows})
    return write_partition(tmp_path / "parts", whole, assign_nodes(whole, 2, "hash"), 2, store)


def opened(root: Path, rank: int, peers: Peers) -> Any:
    """Return the pipeline of `fetched` over a part that is opened."""
    part, whole = open_part(root, rank), joint.GRAPHS["plain"]()
    pipe = gf.ItemSampler(joint.items(whole), 6, shuffle=True).sample_neighbor(
        PartitionedGraph(part.graph, peers), [3, 4]
    )
    return pipe.fetch_feature(part.partitioned_features(peers), ["code"])


def test_rows_are_asked_for_ahead_where_they_are_constant_or_somebody_wants_windows_and_there_are_several_parts(
    stored: Path,
) -> None:
    def explain(pipe: gf.Datapipe) -> list[bool]:
        options: list[dict[str, Any]] = [{}, {"window": 0}, {"memory_limit": "1M"}, {"window": 1}]
        return ["fetch_in_windows" in gf.DataLoader(pipe, 2, **chosen).explain() for chosen in options]

    def work(rank: int, peers: Peers) -> list[list[bool]]:
        return [explain(fetched("plain", rank, peers)), explain(opened(stored, rank, peers))]

    assert in_threads(2, work) == [[[False, False, False, True], [True, False, True, True]]] * 2
    assert "fetch_in_windows" not in gf.DataLoader(fetched("plain", 0, None), 0, window=4).explain()


@pytest.mark.parametrize(
    ("memory_limit", "updated_by"),
    [
        pytest.param(1_700, [0], id="each epoch asks, as there is room for few rows"),
        pytest.param(None, [0], id="all rows are kept"),
        pytest.param(None, [0, 1], id="all ranks update theirs"),
    ],
)
def test_constant_rows_are_asked_for_ahead_and_refused_once_their_owner_updates_them(
    stored: Path, memory_limit: int | None, updated_by: list[int]
) -> None:
    expected, steps = digests(gf.DataLoader(fetched("plain", 0, None), 0, seed=3)), threading.Barrier(2, timeout=60)

    def work(rank: int, peers: Peers) -> None:
        pipe = opened(stored, rank, peers)
        feature = pipe.features()["node", None, "code"]
        with gf.DataLoader(pipe, 2, seed=3, memory_limit=memory_limit) as loader:
            assert digests(loader) == expected
            steps.wait()
            if rank in updated_by:
                feature.rows.update(feature.rows.read(torch.tensor([0])) + 1, torch.tensor([0]))
            steps.wait()
            said = rf"rows of part {1 - rank} are or were updated, but another rank .* pass DataLoader\(window=0\)"
            with pytest.raises(RuntimeError, match=said) if 1 - rank in updated_by else nullcontext():
                list(loader)
            steps.wait()
        updated = feature.book.ids_of(0)[:1]
        assert torch.equal(feature.read(updated), joint.codes(updated) + 1)

    in_threads(2, work)


def test_a_window_takes_the_place_of_a_cache_and_ids_outside_are_refused() -> None:
    def work(rank: int, peers: Peers) -> None:
        book = PartBook.from_bounds([0, 3, 6])
        feature = PartitionedFeature(cut_rows(VALUES, book, rank), book, peers)
        store = gf.BasicFeatureStore({("node", None, "x"): gf.cpu_cached_feature(feature, 1 << 10)})
        for ids in (torch.arange(6), torch.tensor([1, 5, 0, 6, 2, 4])):
            pipe = gf.ItemSampler(gf.ItemSet(ids, names="seeds"), 2).fetch_feature(store, ["x"])
            with gf.DataLoader(pipe, 0, window=2) as loader:
                batches = iter(loader)
                assert torch.equal(next(batches).node_features["x"], VALUES[ids[:2]])
                with nullcontext() if ids[3] < 6 else pytest.raises(IndexError):
                    assert torch.equal(next(batches).node_features["x"], VALUES[ids[2:4]])

    in_threads(2, work)
