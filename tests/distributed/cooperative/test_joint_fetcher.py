"""That rows are those of the nodes is tested together with the sampler."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import Peers
from graphfeed.distributed.cooperative.joint_fetcher import JointFetcher, WrappedFetcher
from graphfeed.loader.caches import find_caches
from tests.distributed.graphs import plain
from tests.distributed.joint import in_threads, joint_pipe

READ: list[int] = []


class Counting(gf.TorchBasedFeature):
    """Counts the rows that are read."""

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        assert ids is not None
        READ.append(len(ids))
        return super().read(ids)


def test_each_row_is_read_once_for_all_ranks() -> None:
    READ.clear()
    feature = gf.cpu_cached_feature(Counting(torch.zeros(100, 1)), 0)
    store = gf.BasicFeatureStore({("node", None, "code"): feature})

    def work(rank: int, peers: Peers) -> list[int]:
        pipe = joint_pipe(rank, peers, "plain", "sample_neighbor")
        assert isinstance(pipe, JointFetcher)
        pipe.wrapped.fetcher.__dict__["feature_store"] = store
        assert [name for name, _ in find_caches(pipe)] == ["node code"]
        with gf.DataLoader(pipe, 0, seed=3) as loader:
            batches = list(loader)
        return [peers.traffic.rows_read, sum(len(batch.input_nodes) for batch in batches)]

    read, needed = zip(*in_threads(2, work), strict=True)
    assert sum(READ) == sum(read)
    assert sum(READ) < sum(needed)


@pytest.mark.parametrize("kind", ["plain", "typed"])
def test_rows_lie_where_the_mini_batch_does(kind: str) -> None:
    def work(rank: int, peers: Peers) -> set[str]:
        fetch = joint_pipe(rank, peers, kind, "sample_neighbor")
        assert isinstance(fetch, JointFetcher)
        pipe = fetch.datapipe.transform(lambda batch: batch.to("meta"))
        with gf.DataLoader(fetch.changed(datapipe=pipe), 0, seed=3) as loader:
            return {rows.device.type for batch in loader for rows in batch.node_features.values()}

    assert in_threads(2, work) == [{"meta"}] * 2


def test_a_stage_that_replaced_the_outermost_hop_is_found() -> None:
    pipe = gf.ItemSampler(gf.ItemSet(3, names="seeds"), 3).sample_neighbor(plain(), [2])
    fetch: Any = pipe.fetch_feature(gf.BasicFeatureStore({}), [])
    with pytest.raises(ValueError, match="a stage before the fetch replaced it"):
        JointFetcher(pipe, WrappedFetcher(fetch))(next(iter(pipe)))
