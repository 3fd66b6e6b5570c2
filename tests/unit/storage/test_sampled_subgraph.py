"""Sampled subgraphs: their repr, their conversion for PyG, and the removal of edges."""

import copy
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import PyGLayerData, PyGLayerHeteroData
from graphfeed.storage import CSCFormatBase, SampledSubgraph
from graphfeed.storage.memory import tensors_in
from tests.kinds import pipelines
from tests.kinds.digests import assert_same
from tests.kinds.refusals import Refusal, check_refused

INDPTR = torch.tensor([0, 1, 3])
INDICES = torch.tensor([2, 0, 1])


def homogeneous() -> SampledSubgraph:
    ids = torch.tensor([7, 5, 9])
    return SampledSubgraph(CSCFormatBase(INDPTR, INDICES), ids[:2], ids, torch.tensor([3, 0, 4]))


def typed() -> SampledSubgraph:
    ids = {"user": torch.tensor([7, 5, 9]), "item": torch.tensor([1])}
    csc = {"user:likes:user": CSCFormatBase(INDPTR, INDICES)}
    return SampledSubgraph(csc, {"user": ids["user"][:2], "item": ids["item"]}, ids, {"user:likes:user": INDICES})


CSC = CSCFormatBase(INDPTR, INDICES)
IDS = torch.tensor([7, 5, 9])


def test_only_the_edges_are_needed_and_none_is_pinned() -> None:
    subgraph = SampledSubgraph(CSC).to("cpu")
    assert subgraph.original_column_node_ids is subgraph.original_row_node_ids is subgraph.original_edge_ids is None
    assert not CSC.is_pinned()
    assert not SampledSubgraph({"a:b:c": CSC}, {"c": IDS}).is_pinned()


@pytest.mark.gpu
def test_pinned_copies() -> None:
    subgraph = SampledSubgraph({"a:b:c": CSC}, {"c": IDS[:2]}, {"a": IDS})
    for pinned in (subgraph.pin_memory(), subgraph.to("pinned")):
        assert pinned.is_pinned()
        assert all(tensor.is_pinned() for tensor in tensors_in(pinned))
        assert_same(pinned, subgraph)
    assert not subgraph.is_pinned()
    assert CSC.pin_memory().is_pinned()


PAIR: Any = torch.tensor([[0, 1]])
WRONG: Any = []
REFUSED: list[Refusal] = [
    (lambda: CSCFormatBase(torch.tensor([0, 2]), INDICES), ValueError,
     "indptr must end with the number of edges, 3 .*, but ends with 2"),
    (lambda: CSCFormatBase(torch.tensor([]), torch.tensor([])), ValueError,
     "indptr must have one more entry than there are columns, but is empty"),
    (lambda: CSCFormatBase(torch.tensor([0]), WRONG), TypeError, r"indices must be a torch\.Tensor, but is a list"),
    (lambda: SampledSubgraph({"likes": CSCFormatBase(torch.tensor([0]), torch.tensor([]))}), ValueError,
     "edge types must be of the form 'src:rel:dst', but one is 'likes'"),
    (lambda: homogeneous().exclude_edges({"user:likes:user": PAIR}), TypeError,
     r"edges must be a tensor of shape \(N, 2\), but is a dict"),
    (lambda: typed().exclude_edges(PAIR), TypeError,
     "edges must be a dict by edge type, as the subgraph has types, but is a Tensor"),
    (lambda: homogeneous().to_pyg({"user": IDS}), TypeError,
     "x must be a tensor, as the subgraph has no types, but is a dict"),
    (lambda: typed().to_pyg(IDS), TypeError,
     "x must be a dict by node type, as the subgraph has types, but is a Tensor"),
]  # fmt: skip


def test_what_is_no_subgraph_or_does_not_fit_it() -> None:
    check_refused(REFUSED)
    assert len(CSCFormatBase(torch.tensor([0, 0]), INDICES[:0]).indices) == 0
    assert gf.SampledSubgraphImpl is SampledSubgraph


X = torch.arange(6.0).reshape(3, 2)
ETYPE = "user:likes:item"
LAYER = CSCFormatBase(INDPTR.int(), INDICES.int())
ROWS = {"user": torch.arange(3), "item": torch.arange(2)}


def test_a_layer_with_and_without_types() -> None:
    layer = SampledSubgraph(LAYER).to_pyg(X)
    assert isinstance(layer, PyGLayerData)
    assert_same(tuple(layer), ((X, X[:2]), torch.tensor([[2, 0, 1], [0, 1, 1]]), (3, 2)))
    x = {"user": X, "item": X[:2] + 10}
    typed_layer = SampledSubgraph({ETYPE: LAYER}, original_row_node_ids=ROWS).to_pyg(x)
    assert isinstance(typed_layer, PyGLayerHeteroData)
    assert typed_layer.x[0] is x
    assert_same(typed_layer.x[1], {"item": X[:2] + 10})
    assert_same(typed_layer.edge_index, {ETYPE: torch.tensor([[2, 0, 1], [0, 1, 1]])})
    assert typed_layer.size == {ETYPE: (3, 2)}


def test_a_type_may_have_no_features() -> None:
    for rows, x in ((ROWS, {"item": X[:2]}), (ROWS, {"user": X}), (None, {"user": X})):
        layer = SampledSubgraph({ETYPE: LAYER}, original_row_node_ids=rows).to_pyg(x)
        assert layer.size == {ETYPE: (3, 2)}
        assert_same(layer.x[1], {kind: own for kind, own in x.items() if kind == "item"})


def test_a_model_compiles_as_one_graph() -> None:
    def messages(subgraph: SampledSubgraph, x: Any) -> Any:
        (sources, _), edge_index, size = subgraph.to_pyg(x)
        if isinstance(edge_index, dict):
            return {kind: sources[kind.split(":")[0]][own[0]] + size[kind][1] for kind, own in edge_index.items()}
        return sources[edge_index[0]] + size[1]

    compiled = torch.compile(messages, fullgraph=True, dynamic=True, backend="eager")
    for minibatch in (*pipelines.homogeneous(), *pipelines.heterogeneous()):
        for subgraph in minibatch.sampled_subgraphs:
            rows = subgraph.original_row_node_ids
            typed = isinstance(rows, dict)
            x = {kind: own.float()[:, None] for kind, own in rows.items()} if typed else rows.float()[:, None]
            assert_same(compiled(subgraph, x), messages(subgraph, x))


def with_ids() -> SampledSubgraph:
    """Edges 11 -> 10, 10 -> 11, 12 -> 11, 12 -> 11, with ids 5, 6, 7, 8."""
    ids = torch.tensor([10, 11, 12])
    csc = CSCFormatBase(torch.tensor([0, 1, 4]), torch.tensor([1, 0, 2, 2]))
    return SampledSubgraph(csc, ids[:2], ids, torch.tensor([5, 6, 7, 8]))


def with_types() -> SampledSubgraph:
    one = with_ids()
    csc = {ETYPE: one.sampled_csc, "item:liked_by:user": CSCFormatBase(torch.tensor([0, 1]), torch.tensor([0]))}
    rows = {"user": torch.tensor([10, 11, 12]), "item": torch.tensor([20, 21])}
    columns = {"user": torch.tensor([10]), "item": torch.tensor([20, 21])}
    return SampledSubgraph(csc, columns, rows, {ETYPE: one.original_edge_ids, "item:liked_by:user": torch.tensor([9])})


def edges_of(subgraph: SampledSubgraph) -> list[tuple[int, int, int]]:
    """Return source, destination and id of each edge."""
    rows, columns, ids = subgraph.original_row_node_ids, subgraph.original_column_node_ids, subgraph.original_edge_ids
    sources = subgraph.sampled_csc.indices
    destinations = gf.expand_indptr(subgraph.sampled_csc.indptr, torch.int64)
    return list(zip(rows[sources].tolist(), columns[destinations].tolist(), ids.tolist(), strict=True))


def test_every_edge_that_joins_a_pair_goes() -> None:
    subgraph = with_ids()
    before = copy.deepcopy(subgraph)
    result = subgraph.exclude_edges(torch.tensor([[12, 11], [11, 10], [10, 10]]))
    assert edges_of(result) == [(10, 11, 6)]
    assert_same(result.sampled_csc, CSCFormatBase(torch.tensor([0, 0, 1]), torch.tensor([0])))
    assert result.original_row_node_ids is subgraph.original_row_node_ids
    assert result.original_column_node_ids is subgraph.original_column_node_ids
    assert_same(subgraph, before)


def test_nothing_to_exclude_and_nothing_left() -> None:
    subgraph = with_ids()
    assert_same(subgraph.exclude_edges(torch.empty(0, 2, dtype=torch.int64)), subgraph)
    everything = torch.tensor([[source, destination] for source, destination, _ in edges_of(subgraph)])
    empty = subgraph.exclude_edges(everything)
    assert edges_of(empty) == edges_of(empty.exclude_edges(everything)) == []


def test_dtypes_and_subclasses_stay_and_without_ids_positions_are_ids() -> None:
    class Mine(SampledSubgraph):
        pass

    for dtype in (torch.int32, torch.int64):
        ids = torch.arange(3, dtype=dtype)
        csc, kept = (CSCFormatBase(torch.tensor([0, end], dtype=dtype), ids[3 - end :]) for end in (2, 1))
        result = Mine(csc, ids[:1], ids, ids[1:]).exclude_edges(torch.tensor([[1, 0]]))
        assert_same(result, Mine(kept, ids[:1], ids, ids[2:]))
        assert type(result) is Mine
    csc = CSCFormatBase(torch.tensor([0, 2, 3]), torch.tensor([5, 6, 5]))
    found = SampledSubgraph(csc).exclude_edges(torch.tensor([[5, 1]]))
    assert_same(found, SampledSubgraph(CSCFormatBase(torch.tensor([0, 2, 2]), torch.tensor([5, 6]))))


def test_a_type_that_is_not_named_is_kept_whole() -> None:
    subgraph = with_types()
    result = subgraph.exclude_edges({ETYPE: torch.tensor([[12, 21], [10, 10]]), "no:such:type": torch.tensor([[0, 0]])})
    csc, ids = result.sampled_csc, result.original_edge_ids
    assert_same(csc[ETYPE], CSCFormatBase(torch.tensor([0, 1, 2]), torch.tensor([1, 0])))
    assert_same(ids[ETYPE], torch.tensor([5, 6]))
    assert csc["item:liked_by:user"] is subgraph.sampled_csc["item:liked_by:user"]
    assert_same(subgraph, with_types())


def test_edges_may_be_arrays_and_edge_types_tuples_and_can_be_waited_for() -> None:
    pairs = torch.tensor([[11, 10], [12, 11]])
    expected: Any = with_ids().exclude_edges(pairs)
    array: Any = pairs.numpy()
    assert_same(vars(with_ids().exclude_edges(array)), vars(expected))
    given: Any = {("user", "likes", "item"): pairs[:1].tolist()}
    assert_same(with_types().exclude_edges(given, async_op=True).wait(), with_types().exclude_edges({ETYPE: pairs[:1]}))
