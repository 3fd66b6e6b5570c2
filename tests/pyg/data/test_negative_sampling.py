from typing import Any

import pytest
import torch

from graphfeed.pyg import LinkNeighborLoader, NegativeSampling
from graphfeed.pyg.data.tables import import_pyg
from tests.pyg.neighborhood import heterogeneous


def test_what_pygs_loaders_take_is_taken() -> None:
    theirs = import_pyg("torch_geometric.sampler", "tests").NegativeSampling("triplet", 2, dst_weight=torch.ones(3))
    found = NegativeSampling.cast(theirs)
    assert found is not None
    assert (found.mode, found.amount, found.dst_weight is not None) == ("triplet", 2, True)
    for given in ("binary", ("binary", 1), {"mode": "binary"}, NegativeSampling("binary")):
        assert NegativeSampling.cast(given) == NegativeSampling("binary", 1)
    assert NegativeSampling.cast(None) is None
    with pytest.raises(TypeError, match="neg_sampling must be"):
        NegativeSampling.cast(3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("some", 1), "mode must be"),
        (("binary", 0), "amount must be more than 0"),
        (("triplet", 1.5), "whole number"),
    ],
)
def test_wrong_values_are_refused(given: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        NegativeSampling(*given)


def test_it_tells_its_mode() -> None:
    assert NegativeSampling("binary", 0.5).is_binary()
    assert NegativeSampling("triplet", 2.0).is_triplet()


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_with_types_and_in_time_strict_negatives_exist_and_are_no_edges(mode: str) -> None:
    data, kind = heterogeneous(), ("user", "likes", "item")
    edges = {tuple(pair) for pair in data[kind].edge_index.T.tolist()}
    times = torch.randint(20, 50, (120,), generator=torch.Generator().manual_seed(0))
    loader = LinkNeighborLoader(
        data, [2], kind, edge_label_time=times, time_attr="time", seed=0, batch_size=40,
        neg_sampling=NegativeSampling(mode, 2, strict=True),
    )  # fmt: skip
    count = 0
    for batch in loader:
        user, item = batch["user"], batch["item"]
        if mode == "triplet":
            sources, ends = user.src_index.repeat_interleave(2), item.dst_neg_index.reshape(-1)
            limits = user.seed_time.repeat_interleave(2)
        else:
            is_negative = batch[kind].edge_label == 0
            sources, ends = batch[kind].edge_label_index[:, is_negative]
            limits = batch[kind].edge_label_time[is_negative]
            assert (user.time[sources] <= limits).all()
        assert (item.time[ends] <= limits).all()
        pairs = set(zip(user.n_id[sources].tolist(), item.n_id[ends].tolist(), strict=True))
        assert pairs.isdisjoint(edges)
        assert len(sources) == 2 * len(batch[kind].input_id)
        count += len(sources)
    assert count == 240
