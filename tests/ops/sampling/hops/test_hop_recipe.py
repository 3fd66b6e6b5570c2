import pytest
import torch

from graphfeed.ops.sampling.hops.hop_recipe import MANY, Drawing, KernelGraph, recipe_of

GRAPH = KernelGraph(torch.tensor([0, 2]), torch.tensor([0, 0]))


def test_fan_outs_and_thresholds_of_many_values_share_a_recipe() -> None:
    first = recipe_of(GRAPH, torch.int64, Drawing("labor", switch_threshold=7), [[MANY], [MANY + 5]], False)
    second = recipe_of(GRAPH, torch.int64, Drawing("labor", switch_threshold=9), [[1000], [MANY]], False)
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    "graph",
    [
        GRAPH._replace(indices=GRAPH.indices.int()),
        GRAPH._replace(types=torch.tensor([0, 0], dtype=torch.uint8)),
        GRAPH._replace(cumulative=torch.tensor([1, 2])),
    ],
)
def test_what_other_passes_sample_has_another_recipe(graph: KernelGraph) -> None:
    plain = recipe_of(GRAPH, torch.int64, Drawing(), [[2]], False)
    assert recipe_of(graph, torch.int64, Drawing(), [[2]], False) != plain
    assert recipe_of(GRAPH, torch.int32, Drawing(), [[2]], False) != plain
    assert recipe_of(GRAPH, torch.int64, Drawing(replace=True), [[2]], False) != plain


def test_nodes_are_merged_where_there_is_a_node_map() -> None:
    one_hop = recipe_of(GRAPH, torch.int64, Drawing(), [[2]], False)
    assert not one_hop.merged
    assert one_hop._replace(relabelled=True).merged
    assert not one_hop._replace(relabelled=True, ranked=((False,) * 5,) * 2).merged
