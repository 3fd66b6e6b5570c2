"""Events in their order, with negatives."""

import pytest
import torch

from graphfeed import ItemSampler, ItemSet
from graphfeed.pyg import TemporalDataLoader, ToTemporalData
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.pyg.stages.to_temporal_data import gather_events
from tests.pyg.neighborhood import events, values_of


@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_equal_those_of_pyg(drop_last: bool) -> None:
    data = events()
    del data.scale  # PyG asks each attribute for its length
    peer = import_pyg("torch_geometric.loader", "tests")
    ours = TemporalDataLoader(data, batch_size=7, drop_last=drop_last)
    theirs = list(peer.TemporalDataLoader(data, batch_size=7, drop_last=drop_last))
    assert len(ours) == len(theirs) == (7 if drop_last else 8)
    for own, other in zip(ours, theirs, strict=True):
        assert type(own) is type(other)
        assert list(own.keys()) == list(other.keys())
        assert values_of(own) == values_of(other)


def test_what_does_not_belong_to_events_stays() -> None:
    assert next(iter(TemporalDataLoader(events(), batch_size=7))).scale == 2


def test_changing_a_batch_leaves_the_data_alone() -> None:
    data = events()
    for batch in TemporalDataLoader(data, 50):
        batch.t.zero_()
    assert torch.equal(data.t, events().t)


def test_negatives_are_uniform_between_the_ends_of_the_destinations() -> None:
    data = events()
    drawn = torch.cat([batch.neg_dst for batch in TemporalDataLoader(data, 25, neg_sampling_ratio=100.0, seed=1)])
    assert (len(drawn), drawn.dtype) == (5000, torch.int32)
    counts = drawn.bincount()[20:]
    assert int(counts.sum()) == 5000
    assert ((counts - 500) ** 2 / 500).sum() < 27.9  # the quantile 0.999 of 9 degrees of freedom
    (first, *_) = TemporalDataLoader(data, 5, neg_sampling_ratio=0.5)
    assert len(first.neg_dst) == 2
    assert first.n_id.tolist() == sorted({*first.src.tolist(), *first.dst.tolist(), *first.neg_dst.tolist()})


def test_events_are_filled_into_the_template() -> None:
    items = ItemSet((torch.tensor([4, 2, 4]), torch.tensor([7, 7, 5]), torch.arange(3)), names=("src", "dst", "t"))
    template = import_pyg("torch_geometric.data", "tests").TemporalData(name="events")
    pipe = ToTemporalData(ItemSampler(items, 2, minibatcher=gather_events), template)
    first, second = pipe
    assert (first.src.tolist(), first.t.tolist(), first.n_id.tolist(), first.name) == (
        [4, 2],
        [0, 1],
        [2, 4, 7],
        "events",
    )
    assert (second.dst.tolist(), second.n_id.tolist()) == ([5], [4, 5])
    assert template.to_dict() == {"name": "events"}
