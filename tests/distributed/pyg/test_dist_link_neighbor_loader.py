"""That mini-batches are those of the whole graph is tested together with the loader for nodes."""

from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.distributed import (
    DistContext,
    DistLinkNeighborLoader,
    DistNeighborLoader,
    LocalFeatureStore,
    LocalGraphStore,
)
from graphfeed.pyg import NegativeSampling
from tests.distributed.pyg_data import plain_data
from tests.pages import rows

PAGE = Path(__file__).resolve().parents[3] / "docs" / "from-pyg-distributed.md"

ALONE = DistContext(0, 0, 1, 1, "test")


def make_loader(**options: Any) -> DistLinkNeighborLoader:
    """Return a loader of a single rank."""
    data = plain_data()
    graph = LocalGraphStore.from_data(torch.arange(400), data.edge_index, 60)
    features = LocalFeatureStore.from_data(torch.arange(60), data.x)
    features.put_tensor(data.time, None, "time")
    return DistLinkNeighborLoader((features, graph), [3, 2], "127.0.0.1", 0, ALONE, batch_size=100, **options)


def test_all_edges_of_the_part_are_seeds_unless_others_are_given() -> None:
    data = plain_data()
    found = [batch.n_id[batch.edge_label_index] for batch in make_loader()]
    seeds = torch.cat(found, dim=1)
    order = (data.edge_index[1] * 60 + data.edge_index[0]).sort().values
    assert torch.equal((seeds[1] * 60 + seeds[0]).sort().values, order)
    assert list(make_loader(edge_label_index=data.edge_index[:, :0])) == []


def test_negatives_follow_the_edges() -> None:
    index = plain_data().edge_index[:, :50]
    (batch,) = make_loader(edge_label_index=index, neg_sampling_ratio=1.0, edge_label=torch.arange(50))
    assert batch.edge_label.tolist() == [*range(1, 51), *[0] * 50]
    assert torch.equal(batch.n_id[batch.edge_label_index[:, :50]], index)
    (batch,) = make_loader(edge_label_index=index, neg_sampling="triplet")
    assert torch.equal(batch.n_id[torch.stack([batch.src_index, batch.dst_pos_index])], index)


def test_times_go_together_and_negatives_exist_in_time() -> None:
    index, data = plain_data().edge_index[:, :50], plain_data()
    times = data.time[index].max(dim=0).values
    given = {"edge_label_index": index, "edge_label_time": times, "neg_sampling": ("triplet", 2)}
    (batch,) = make_loader(**given, time_attr="time")
    negatives = data.time[batch.n_id[batch.dst_neg_index]]
    assert bool((negatives <= times[:, None]).all())
    for some in ({"edge_label_time": times}, {"time_attr": "time"}):
        with pytest.raises(ValueError, match="edge_label_time and time_attr go together"):
            make_loader(edge_label_index=index, **some)


def test_strict_negatives_need_the_whole_graph() -> None:
    loader = make_loader(neg_sampling=NegativeSampling("binary", strict=True))
    with pytest.raises(TypeError, match="strict=True needs a graph in memory"):
        next(iter(loader))


def test_the_page_about_the_move_names_every_argument() -> None:
    listed = {cells[0].strip("`"): cells[1] for cells in rows(PAGE, "argument")}
    node, link = (
        set(signature(loader).parameters) - {"kwargs"} for loader in (DistNeighborLoader, DistLinkNeighborLoader)
    )
    assert {name for name, where in listed.items() if where in ("both", "node")} == node | {"rpc_timeout"}
    assert {name for name, where in listed.items() if where in ("both", "link")} == link | {"rpc_timeout"}
