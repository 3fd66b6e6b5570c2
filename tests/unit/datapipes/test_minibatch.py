"""Mini-batches like GraphBolt's, but without views of other libraries, and printing does not modify them."""

import copy
import pickle
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.ops import Key
from tests.kinds import pipelines
from tests.kinds.digests import assert_same, digest, digests
from tests.kinds.stages import make_items
from tests.unit.datapipes.test_pipeline_graph import Join

IDS = torch.arange(3)


def make_batch() -> gf.MiniBatch:
    csc = gf.CSCFormatBase(torch.tensor([0, 1]), torch.tensor([1]))
    layers = [gf.SampledSubgraph(csc, IDS[:1], IDS, torch.tensor([place])) for place in (5, 6)]
    return gf.MiniBatch(
        seeds=IDS[:1],
        labels=IDS[:1] * 1.0,
        sampled_subgraphs=layers,
        input_nodes=IDS,
        node_features={"feat": torch.ones(3, 2)},
        edge_features=[{"row": torch.ones(1, 1)}, {}],
        key=Key(1, 2, 3),
    )


def devices_in(value: Any) -> set[str]:
    """Return the devices of the tensors in a mini-batch."""
    if isinstance(value, torch.Tensor):
        return {value.device.type}
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, (gf.MiniBatch, gf.SampledSubgraph, gf.CSCFormatBase)):
        parts = vars(value).values()
    return {name for part in parts for name in devices_in(part)}


def test_fields_come_in_graphbolts_order_and_are_none_until_they_are_set() -> None:
    values: Any = "abcdefgh"
    batch: Any = gf.MiniBatch(*values)
    assert (batch.labels, batch.seeds, batch.indexes, batch.sampled_subgraphs) == tuple("abcd")
    assert (batch.input_nodes, batch.node_features, batch.edge_features, batch.compacted_seeds) == tuple("efgh")
    assert vars(gf.MiniBatch()) == dict.fromkeys(vars(batch))


def test_before_sampling_there_are_no_layers() -> None:
    assert gf.MiniBatch().num_layers() == 0
    assert gf.MiniBatch().node_ids() is None
    with pytest.raises(ValueError, match="the mini-batch has no sampled_subgraphs yet; put a sampler before"):
        gf.MiniBatch().edge_ids(0)


def test_attributes_of_ones_own_can_be_set_and_travel() -> None:
    batch: Any = make_batch()
    batch.weather = {"rain": IDS}
    assert copy.copy(batch).weather is batch.weather
    assert_same(pickle.loads(pickle.dumps(batch)), batch)
    batch.set_node_features({"feat": IDS})
    batch.set_edge_features([{"row": IDS}])
    assert_same([batch.node_features, batch.edge_features], [{"feat": IDS}, [{"row": IDS}]])
    assert batch.to("meta").weather["rain"].device.type == "meta"


@dataclass(slots=True, repr=False, eq=False)
class Weighed(gf.MiniBatch):
    weight: float = 1.0


def test_stages_keep_what_a_subclass_has_in_slots() -> None:
    graph = gf.fused_csc_sampling_graph(torch.tensor([0, 1, 2, 3]), torch.tensor([1, 2, 0]))
    pipe = gf.IterableSource([Weighed(seeds=torch.tensor([2, 0]), weight=0.5)])
    minibatch: Any = next(iter(pipe.sample_neighbor(graph, [1])))
    assert (type(minibatch), minibatch.weight, minibatch.seeds.tolist()) == (Weighed, 0.5, [2, 0])


def test_to_moves_every_tensor_and_returns_the_same_object() -> None:
    batch = make_batch()
    key = batch.key
    assert batch.to("meta") is batch
    assert devices_in(batch) == {"meta"}
    assert batch.key is key
    typed = gf.MiniBatch(seeds={"user": IDS}, node_features={("user", "feat"): IDS}).to("meta")
    assert devices_in(typed) == {"meta"}


def test_it_prints_the_shapes_of_what_is_set() -> None:
    hop = "SampledSubgraph(rows=3, columns=1, edges=1)"
    assert repr(make_batch()) == (
        "MiniBatch(\n"
        "  labels=float32[1],\n"
        "  seeds=int64[1],\n"
        f"  sampled_subgraphs=[{hop}, {hop}],\n"
        "  input_nodes=int64[3],\n"
        "  node_features={'feat': float32[3, 2]},\n"
        "  edge_features=[{'row': float32[1, 1]}, {}],\n"
        "  key=Key(seed=1, epoch=2, index=3),\n"
        ")"
    )
    assert repr(gf.MiniBatch()) == "MiniBatch()"


def test_details_are_its_attributes_from_the_last_letter_to_the_first() -> None:
    csc = gf.CSCFormatBase(torch.tensor([0, 1]), torch.tensor([0]))
    batch = gf.MiniBatch(
        seeds={"a": torch.tensor([3])},
        labels=torch.tensor([1.0]),
        sampled_subgraphs=[gf.SampledSubgraph(csc)],
        edge_features=[{"x": torch.tensor([1])}, {}],
    )
    batch._private = batch.extra = torch.tensor([2])  # type: ignore[attr-defined]
    assert batch.details() == (
        "MiniBatch(seeds={'a': tensor([3])},\n"
        "          sampled_subgraphs=[SampledSubgraph(sampled_csc=CSCFormatBase(indptr=tensor([0, 1]),\n"
        "                                                                       indices=tensor([0]),\n"
        "                                                         ),\n"
        "                                             original_row_node_ids=None,\n"
        "                                             original_edge_ids=None,\n"
        "                                             original_column_node_ids=None,\n"
        "                             )],\n"
        "          node_features=None,\n"
        "          labels=tensor([1.]),\n"
        "          input_nodes=None,\n"
        "          indexes=None,\n"
        "          extra=tensor([2]),\n"
        "          edge_features=[{'x': tensor([1])},\n"
        "                         {}],\n"
        "          compacted_seeds=None,\n"
        ")"
    )


@pytest.mark.gpu
def test_pinning_takes_all_tensors() -> None:
    batch = next(iter(pipelines.heterogeneous()))
    before = copy.deepcopy(batch)
    assert batch.pin_memory() is batch
    assert batch.is_pinned()
    assert_same(batch, before)


def from_generator(minibatch: gf.MiniBatch) -> gf.MiniBatch:
    return replace(minibatch, labels=torch.rand(4, generator=minibatch.generator()))


class FromGenerator(gf.Transform, draws=True, seeded=False):
    """Draws only from the mini-batch's generator."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        drawn = torch.rand(4, generator=minibatch.generator("cpu"))
        return replace(minibatch, indexes=drawn if minibatch.indexes is None else minibatch.indexes + drawn)


def test_the_generator_of_a_minibatch_draws_the_same_with_any_workers_and_in_a_resumed_epoch() -> None:
    pipe = (
        FromGenerator(FromGenerator(make_items(12, shuffle=True).transform(from_generator)))
        .transform(from_generator)
        .buffer(2)
    )
    expected = digests(pipe.with_seed(7))
    assert len(set(expected)) == 6
    torch.manual_seed(99)
    loaders: list[dict[str, Any]] = [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "worker": "process"}]
    for options in loaders:
        with gf.DataLoader(pipe, seed=7, **options) as loader:
            iterator = iter(loader)
            first = [digest(next(iterator)) for _ in range(2)]
            state = loader.state_dict()
        with gf.DataLoader(pipe, seed=7, **options) as loader:
            loader.load_state_dict(state)
            assert first + digests(loader) == expected


def test_the_generators_of_stages_minibatches_and_epochs_differ() -> None:
    def keep(minibatch: gf.MiniBatch) -> gf.MiniBatch:
        made = from_generator(minibatch)
        assert_same(made, from_generator(minibatch))  # each call starts again
        return replace(made, compacted_seeds=minibatch.labels)

    source = make_items(4)
    pipe: Any = Join(FromGenerator(FromGenerator(source)), FromGenerator(source).transform(from_generator))
    drawn, in_branches = [], []
    for epoch in range(2):
        for minibatch in source.transform(from_generator).transform(keep).with_seed(0, epoch):
            drawn += [minibatch.labels, minibatch.compacted_seeds, from_generator(minibatch).labels]
        for left, right in pipe.with_seed(0, epoch):
            in_branches += [left.indexes, right.indexes, right.labels]
    assert len({digest(each) for each in drawn}) == len({digest(each) for each in in_branches}) == 12


def test_the_generator_of_a_minibatch_without_a_key_follows_the_seed_of_the_process() -> None:
    made = []
    for _ in range(2):
        gf.seed(3)
        (minibatch,) = gf.IterableSource([gf.MiniBatch()]).transform(from_generator).transform(lambda each: each)
        made += [minibatch.labels, from_generator(gf.MiniBatch()).labels]
    gf.seed(None)
    assert_same(made[:2], made[2:])
    assert not torch.equal(made[0], made[1])


def test_a_stage_without_a_stream_of_its_own_has_no_generator() -> None:
    class NoKey(FromGenerator, draws=False, seeded=False):
        pass

    with pytest.raises(TypeError, match=r"NoKey has seeded=False .* write class NoKey\(\.\.\., draws=True\), too"):
        list(NoKey(make_items()))
    with pytest.raises(TypeError, match="device must be a device"):
        make_batch().generator(())  # type: ignore[arg-type]
