from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.datapipes.pipeline.description import describe, describe_stage
from tests.datapipes.stages import ByFields, ByMethod, Chained, Odd, make_items, make_join


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.ones(3, 2), "float32[3, 2]"),
        (torch.tensor(5), "5"),
        (torch.tensor([7]), "[7]"),
        (gf.ItemSet(100, names="seeds"), "ItemSet(100 items)"),
        (gf.HeteroItemSet({"a": gf.ItemSet(2), "b": gf.ItemSet(3)}), "HeteroItemSet(5 items)"),
        (gf.BasicFeatureStore({}), "BasicFeatureStore(0 features)"),
        ([10, 5], "[10, 5]"),
        ((10, [2, -1], torch.tensor([3, 4])), "[10, [2, -1], int64[2]]"),
        (list(range(100)), "list of 100"),
        ([gf.MiniBatch(seeds=torch.ones(1))], "[MiniBatch(...)]"),
        (describe, "describe"),
        (torch.nn.Identity(), "Identity"),
        ({"user": ["feat"]}, "{'user': ['feat']}"),
        ("x" * 200, "'" + "x" * 96 + "..."),
        (None, "None"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_take_few_words(value: Any, text: str) -> None:
    assert describe(value) == text


def test_a_stage_shows_what_is_not_its_default() -> None:
    assert describe_stage(make_items()) == "ItemSampler(item_set=ItemSet(10 items), batch_size=2)"
    assert describe_stage(make_items(shuffle=True)).endswith("batch_size=2, shuffle=True)")
    assert describe_stage(ByFields(make_items(), 5)) == "ByFields(by=5)"
    assert describe_stage(make_items().transform()) == "MiniBatchTransformer()"
    assert describe_stage(ByMethod(make_items(), 5)) == "ByMethod(transformer=ByMethod._work)"


def test_a_stage_without_fields_shows_its_name() -> None:
    assert describe_stage(Odd(make_items())) == "Odd()"


def test_a_chain_is_read_from_its_source() -> None:
    graph = gf.from_coo(torch.tensor([[0], [1]]), 10)
    pipe = make_items().sample_neighbor(graph, [3, [2]]).copy_to("cpu")
    assert repr(pipe) == (
        "ItemSampler(item_set=ItemSet(10 items), batch_size=2) -> "
        "NeighborSampler(graph=FusedCSCSamplingGraph(num_nodes=10, num_edges=1), fanouts=[3, [2]]) -> "
        "CopyTo(device='cpu')"
    )


def test_a_join_shows_its_branches() -> None:
    source = "ItemSampler(item_set=ItemSet(10 items), batch_size=2)"
    branches = f"[{source} -> ByFields(by=100), {source} -> ByMethod(transformer=ByMethod._work)]"
    assert repr(make_join()) == f"{branches} -> Join()"
    assert repr(Chained((make_items(), make_items()))) == f"[{source}, {source}] -> Chained()"
