import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.ops.memory import buffers
from graphfeed.ops.rows import gather
from tests.kinds import pipelines
from tests.kinds.digests import assert_same
from tests.kinds.refusals import Refusal, check_refused
from tests.stand_ins.emulated_cuda import Cuda

NODES = torch.arange(40)[:, None] * 10
EDGES = torch.arange(200)[:, None]
STORE = gf.BasicFeatureStore(
    {
        ("node", None, "feat"): gf.TorchBasedFeature(NODES),
        ("node", None, "other"): gf.TorchBasedFeature(NODES.float()),
        ("node", "user", "feat"): gf.TorchBasedFeature(NODES[:20]),
        ("node", "item", "feat"): gf.TorchBasedFeature(-NODES[:20]),
        ("edge", None, "row"): gf.TorchBasedFeature(EDGES),
        ("edge", "user:likes:item", "row"): gf.TorchBasedFeature(EDGES),
    }
)
GRAPH = gf.from_coo(pipelines.random_edges(40, 40, 200, 0), 40)
TYPED = gf.from_coo(
    {
        "user:likes:item": pipelines.random_edges(20, 20, 200, 1),
        "item:liked_by:user": pipelines.random_edges(20, 20, 200, 2),
    },
    {"user": 20, "item": 20},
)


def homogeneous() -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(40, names="seeds"), batch_size=7).sample_neighbor(GRAPH, [2, 3])


def typed() -> gf.Datapipe:
    items = gf.HeteroItemSet({"user": gf.ItemSet(20, names="seeds")})
    return gf.ItemSampler(items, batch_size=7).sample_neighbor(TYPED, [2, 3])


def test_node_features_are_those_of_the_input_nodes() -> None:
    for batch in homogeneous().fetch_feature(STORE, ["feat", "other"]):
        assert_same(batch.node_features, {"feat": NODES[batch.input_nodes], "other": NODES[batch.input_nodes].float()})
        assert batch.edge_features is None


def test_rows_that_are_read_into_one_buffer_change_and_are_pickled_one_by_one() -> None:
    store = gf.BasicFeatureStore(
        {("node", kind, "feat"): gf.TorchBasedFeature(torch.rand(20, 600)) for kind in ("user", "item")}
    )
    batch = next(iter(typed().fetch_feature(store, {"user": ["feat"], "item": ["feat"]})))
    users, items = (batch.node_features[kind, "feat"] for kind in ("user", "item"))
    weight = torch.ones(600, requires_grad=True)
    loss = (items * weight).sum()
    users += weight
    (loss + users.sum()).backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, items.sum(0) + len(users))
    assert len(pickle.dumps(items)) < items.nbytes + 2000


def test_rows_of_a_rare_dtype_are_read_alone_and_the_others_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"half": torch.rand(40, 900).half(), "feat": torch.rand(40, 900), "other": torch.rand(40, 900)}
    store = gf.BasicFeatureStore({("node", None, name): gf.TorchBasedFeature(own) for name, own in rows.items()})
    copied, copy_into = list[torch.dtype](), gather.copy_into

    def note(values: torch.Tensor, *given: torch.Tensor) -> int:
        copied.append(values.dtype)
        return copy_into(values, *given)

    monkeypatch.setattr(gather, "copy_into", note)
    batch = next(iter(homogeneous().fetch_feature(store, [*rows])))
    assert_same(batch.node_features, {name: own[batch.input_nodes] for name, own in rows.items()})
    assert sorted(map(str, copied)) == ["torch.float16", "torch.float32", "torch.float32"]


def test_labels_that_are_kept_keep_no_large_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "POOL", pool := buffers.BufferPool())
    rows = {"feat": torch.rand(40, 10_000), "label": torch.rand(40, 1)}
    store = gf.BasicFeatureStore({("node", None, name): gf.TorchBasedFeature(own) for name, own in rows.items()})
    batch = next(iter(homogeneous().fetch_feature(store, ["feat", "label"])))
    nodes, labels = batch.input_nodes, batch.node_features["label"]
    assert_same(batch.node_features, {name: own[nodes] for name, own in rows.items()})
    size = batch.node_features["feat"].nbytes
    del batch
    assert pool.idle >= size
    assert torch.equal(labels, rows["label"][nodes])


def test_edge_features_are_those_of_each_layer() -> None:
    for batch in homogeneous().fetch_feature(STORE, edge_feature_keys=["row"]):
        assert_same(batch.edge_features, [{"row": EDGES[batch.edge_ids(layer)]} for layer in range(2)])
        assert batch.node_features is None


def linked(*, typed: bool, ids: bool = True) -> gf.Datapipe:
    own = torch.arange(100, 0, -1)
    ends = torch.randint(20, (100, 2), generator=torch.Generator().manual_seed(0))
    items = gf.ItemSet((ends, own)[: 1 + ids], names=("seeds", "seed_edge_ids")[: 1 + ids])
    return gf.ItemSampler(gf.HeteroItemSet({"user:likes:item": items}) if typed else items, batch_size=7, shuffle=True)


def test_features_of_seeds_that_are_edges_are_read_by_their_ids() -> None:
    pipe = linked(typed=False).sample_uniform_negative(GRAPH, 2).sample_neighbor(GRAPH, [2])
    pipe = pipe.fetch_feature(STORE, ["feat"], ["row"], seed_edge_feature_keys=["row"])
    seen: list[int] = []
    with gf.DataLoader(pipe, num_workers=2, seed=1) as loader:
        for batch in loader:
            assert_same(batch.seed_edge_features, {"row": EDGES[batch.seed_edge_ids]})
            assert len(batch.seed_edge_ids) == int(batch.labels.sum()) == len(batch.seeds) // 3
            seen += batch.seed_edge_ids.tolist()
    assert sorted(seen) == list(range(1, 101))
    kind = "user:likes:item"
    stage: Any = linked(typed=True).fetch_feature(STORE, seed_edge_feature_keys={kind: ["row"]})
    for batch in stage:
        assert_same(dict(stage.wanted_rows(batch)), {("edge", kind, "row"): batch.seed_edge_ids[kind]})
        assert_same(batch.seed_edge_features, {(kind, "row"): EDGES[batch.seed_edge_ids[kind]]})
    with pytest.raises(ValueError, match=r"seed_edge_feature_keys need the ids .* has no seed_edge_ids; give the item"):
        next(iter(linked(typed=False, ids=False).fetch_feature(STORE, seed_edge_feature_keys=["row"])))
    with pytest.raises(KeyError, match="seed_edge_feature_keys: feature 'col' of edges is not in the store"):
        linked(typed=False).fetch_feature(STORE, seed_edge_feature_keys=["col"])


def test_typed_features_are_found_by_type_and_name() -> None:
    names = {"item": ["feat"], "user": ("feat",)}
    for batch in typed().fetch_feature(STORE, names, {"user:likes:item": ["row"]}):
        users, items = batch.input_nodes["user"], batch.input_nodes["item"]
        assert_same(batch.node_features, {("item", "feat"): -NODES[items], ("user", "feat"): NODES[users]})
        for layer, features in enumerate(batch.edge_features):
            ids = batch.edge_ids(layer)["user:likes:item"]
            assert_same(features, {("user:likes:item", "row"): EDGES[ids]})


def test_a_type_that_the_mini_batch_lacks_is_left_out() -> None:
    csc = gf.CSCFormatBase(torch.tensor([0, 1]), torch.tensor([0]))
    layer = gf.SampledSubgraph({"item:liked_by:user": csc}, original_edge_ids={"item:liked_by:user": torch.tensor([3])})
    given = gf.MiniBatch(input_nodes={"item": torch.tensor([2])}, sampled_subgraphs=[layer])
    names = {"user": ["feat"], "item": ["feat"]}
    stage: Any = gf.IterableSource([]).fetch_feature(STORE, names, {"user:likes:item": ["row"]})
    result = stage(given)
    assert_same(result.node_features, {("item", "feat"): -NODES[[2]]})
    assert result.edge_features == [{}]


def test_mini_batches_that_were_not_sampled_get_the_features_of_their_seeds() -> None:
    for batch in gf.ItemSampler(gf.ItemSet(40, names="seeds"), batch_size=7).fetch_feature(STORE, ["feat"], ["row"]):
        assert_same(batch.node_features, {"feat": NODES[batch.seeds]})
        assert batch.edge_features == []
    items = gf.HeteroItemSet({"user": gf.ItemSet(20, names="seeds")})
    for batch in gf.ItemSampler(items, batch_size=7).fetch_feature(STORE, {"user": ["feat"], "item": ["feat"]}):
        assert_same(batch.node_features, {("user", "feat"): NODES[batch.seeds["user"]]})


def test_features_of_a_mini_batch_on_a_device_are_there(cuda: Cuda, tmp_path: Path) -> None:
    np.save(tmp_path / "feat.npy", NODES.numpy())
    here = gf.TorchBasedFeature(NODES)
    features: list[gf.Feature] = [here, gf.DiskBasedFeature(tmp_path / "feat.npy")]
    with cuda.running():
        given = gf.MiniBatch(seeds=cuda.put(torch.tensor([3, 1])))
        for feature in [*features, gf.TorchBasedFeature(cuda.put(NODES))]:
            store = gf.BasicFeatureStore({("node", None, "feat"): feature})
            result = gf.FeatureFetcher(gf.IterableSource([]), store, ["feat"])(given)
            assert cuda.is_there(result.node_features["feat"])
            assert_same(result.node_features["feat"].cpu(), NODES[[3, 1]])


LIKED = ("item", "liked_by", "user")


def users_only() -> gf.BasicFeatureStore:
    return gf.BasicFeatureStore({("node", "user", "feat"): gf.TorchBasedFeature(NODES[:20])})


def test_a_type_without_features_is_an_error_when_a_mini_batch_has_it() -> None:
    num_workers, keys = 2, {"user": ["feat"], "item": ["feat"]}
    alone = gf.ItemSampler(gf.HeteroItemSet({"user": gf.ItemSet(20, names="seeds")}), batch_size=7)
    with gf.DataLoader(alone.fetch_feature(users_only(), keys), num_workers=num_workers) as loader:
        assert "fetch" in loader.explain().lower()
        for batch in loader:
            assert list(batch.node_features) == [("user", "feat")]
    with (
        gf.DataLoader(typed().fetch_feature(users_only(), keys), num_workers=num_workers) as loader,
        pytest.raises(KeyError, match=r"\('node', 'item', 'feat'\) is not in the feature store; it has") as caught,
    ):
        list(loader)
    assert "in FeatureFetcher" in caught.value.__notes__[0]


def test_a_type_that_neither_graph_nor_store_has_is_refused_when_the_stage_is_made() -> None:
    seen: Any = gf.IterableSource([]).sample_neighbor(TYPED, [2])
    links, alone = linked(typed=True).sample_neighbor(TYPED, [2]), linked(typed=True)
    users = users_only()

    def fetch(pipe: Any, store: gf.FeatureStore, **keys: Any) -> Any:
        return lambda: pipe.fetch_feature(store, **keys)

    tuples = {("item", "liked_by", "usr"): ["row"]}
    hint = "did you mean 'user:likes:item'"
    rows: list[Refusal] = [
        (fetch(seen, STORE, node_feature_keys={"usr": ["feat"]}), KeyError,
         r"^node_feature_keys has 'usr', but the node types are \['item', 'user'\]; did you mean 'user'"),
        (fetch(typed(), users, node_feature_keys={"user": ["feat"], "itme": ["feat"]}), KeyError, "mean 'item'"),
        (fetch(links, STORE, edge_feature_keys={"user:liks:item": ["row"]}), KeyError, f"^edge_feature_keys .*{hint}"),
        (fetch(links, STORE, edge_feature_keys=tuples), KeyError, "did you mean 'item:liked_by:user'"),
        (fetch(links, users, seed_edge_feature_keys={"user:liks:item": ["row"]}), KeyError,
         f"^seed_edge_feature_keys .*{hint}"),
        (fetch(alone, users, seed_edge_feature_keys={"user:liks:item": ["row"]}), KeyError, hint),
        (fetch(homogeneous(), gf.BasicFeatureStore({}), node_feature_keys={"user": ["feat"]}), KeyError,
         "has 'user', but there are no node types"),
        (fetch(homogeneous(), gf.BasicFeatureStore({}), edge_feature_keys={"a:b:c": ["feat"]}), KeyError,
         "has 'a:b:c', but there are no edge types"),
    ]  # fmt: skip
    check_refused(rows)


def test_types_of_the_store_or_of_the_items_may_be_no_types_of_the_graph() -> None:
    other, buys = gf.TorchBasedFeature(EDGES), "user:buys:item"
    store = gf.BasicFeatureStore({("node", "shop", "feat"): other, ("edge", ("user", "buys", "item"), "row"): other})
    pipe: Any = typed().fetch_feature(store, {"shop": ["feat"]}, {buys: ["row"]})
    assert all(batch.node_features == {} for batch in pipe)
    items = gf.HeteroItemSet({buys: gf.ItemSet((EDGES[:9].expand(9, 2), EDGES[:9, 0]), ("seeds", "seed_edge_ids"))})
    pipe = gf.ItemSampler(items, 3).sample_neighbor(TYPED, [2])
    assert pipe.fetch_feature(users_only(), seed_edge_feature_keys={buys: ["row"]}) is not None


def test_edge_types_may_be_tuples() -> None:
    store = gf.BasicFeatureStore({("edge", LIKED, "row"): gf.TorchBasedFeature(EDGES)})
    for batch in typed().fetch_feature(store, edge_feature_keys={LIKED: ["row"]}):
        for layer in range(2):
            kind = ":".join(LIKED)
            assert_same(batch.edge_features[layer], {(kind, "row"): EDGES[batch.edge_ids(layer)[kind]]})


def graph_with_ids(*ids: int, typed: bool) -> gf.FusedCSCSamplingGraph:
    """Return a graph whose edges have ids; with types, those of "user:likes:item" do."""
    ends = (torch.arange(len(ids)) % 3, torch.arange(len(ids)) % 2)
    name, given = "_ORIGINAL_EDGE_ID", torch.tensor(ids)
    if not typed:
        return gf.from_coo(ends, 3, edge_attributes={name: given})
    other = torch.arange(99)
    edges = {"user:likes:item": ends, "item:liked_by:user": (other % 3, other % 3)}
    attributes = {name: {"user:likes:item": given, "item:liked_by:user": other}}
    return gf.from_coo(edges, {"user": 3, "item": 3}, edge_attributes=attributes)


@pytest.mark.parametrize("typed", [False, True])
def test_edge_features_have_a_row_for_each_id_of_their_type(*, typed: bool) -> None:
    for ids, rows in (((0, 1, 2, 3), 4), ((3, 3, 1, 1), 4), ((7, 2), 8), ((), 0)):
        check_rows(ids, rows, typed=typed)


def check_rows(ids: tuple[int, ...], rows: int, *, typed: bool) -> None:
    kind = "user:likes:item" if typed else None
    items = gf.ItemSet(2, names="seeds")
    seeds = gf.ItemSampler(gf.HeteroItemSet({"user": items}) if typed else items, 1)
    pipe, names = seeds.sample_neighbor(graph_with_ids(*ids, typed=typed), [2]), {kind: ["w"]} if typed else ["w"]

    def fetch(count: int) -> None:
        store = gf.BasicFeatureStore({("edge", kind, "w"): gf.TorchBasedFeature(torch.ones(count, 1))})
        pipe.fetch_feature(store, None, names)  # type: ignore[arg-type]

    fetch(rows)
    if rows:
        of = " of edge type 'user:likes:item'" if typed else ""
        with pytest.raises(ValueError, match=f"'w'{of} has {rows - 1} rows, but the graph has {rows} edges, by their"):
            fetch(rows - 1)


def test_a_type_without_names_is_left_out() -> None:
    unnamed: list[Any] = [[], None]
    for names in unnamed:
        (batch, *_) = typed().fetch_feature(STORE, {"user": ["feat"], "item": names})
        assert list(batch.node_features) == [("user", "feat")]


def test_a_type_without_nodes_in_the_mini_batch_needs_no_feature() -> None:
    batch = gf.MiniBatch(input_nodes={"user": torch.tensor([1]), "item": torch.tensor([], dtype=torch.int64)})
    fetcher = gf.FeatureFetcher(gf.IterableSource([]), users_only(), {"user": ["feat"], "item": ["feat"]})
    assert_same(fetcher(batch).node_features, {("user", "feat"): NODES[1:2]})
