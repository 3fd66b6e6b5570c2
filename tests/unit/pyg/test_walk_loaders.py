"""Loaders for PyG's Node2Vec and MetaPath2Vec."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.pyg import MetaPath2VecLoader, Node2VecLoader, ToWindows
from graphfeed.storage.graph import to_coo
from tests.kinds import golden_pipelines
from tests.kinds.digests import assert_same
from tests.kinds.refusals import check_refused

pyg_nn = pytest.importorskip("torch_geometric.nn")

EDGES = torch.stack(to_coo(golden_pipelines.untyped())[None][:2])[:, ::5]
TYPED = {tuple(str(kind).split(":")): torch.stack(own[:2]) for kind, own in to_coo(golden_pipelines.typed()).items()}
BACK_AND_FORTH = [("user", "likes", "item"), ("item", "liked_by", "user")]


def of_nodes(**options: Any) -> Node2VecLoader:
    options = {"batch_size": 256, "shuffle": True, "seed": 3, "num_negative_samples": 2, **options}
    return Node2VecLoader(EDGES, 6, 4, walks_per_node=3, p=0.5, q=2.0, num_nodes=2000, **options)


def of_types(**options: Any) -> MetaPath2VecLoader:
    options = {"batch_size": 64, "shuffle": True, "seed": 3, **options}
    return MetaPath2VecLoader(TYPED, BACK_AND_FORTH, 5, 3, walks_per_node=2, **options)


@pytest.mark.parametrize("make", [of_nodes, of_types])
def test_windows_are_the_same_for_any_workers(make: Any) -> None:
    inline = make()
    wanted = [list(inline) for _ in range(2)]
    assert not torch.equal(wanted[0][0][0], wanted[1][0][0])
    with make(num_workers=2) as loader:
        assert_same([list(loader) for _ in range(2)], wanted)


@pytest.mark.slow
def test_windows_are_the_same_in_two_processes() -> None:
    with of_nodes(num_workers=2, worker="process") as loader:
        assert_same(list(loader), list(of_nodes()))


def test_windows_have_the_layout_of_pyg() -> None:
    """PyG's own functions cut the same walks, which `sample_walks` makes with the mini-batch's key."""
    loader = of_nodes(shuffle=False)
    positive, negative = next(iter(loader))
    windows: Any = loader.pipeline
    assert isinstance(windows, ToWindows)
    walks = next(iter(windows.datapipe.with_seed(3))).walks
    whole = torch.where(walks < 0, torch.gather(walks, 2, (walks >= 0).sum(2, keepdim=True) - 1), walks)
    model = SimpleNamespace(
        walks_per_node=3, walk_length=5, context_size=4, p=0.5, q=2.0, num_negative_samples=2, num_nodes=2000,
        rowptr=None, col=None, random_walk_fn=lambda *given: whole.transpose(0, 1).flatten(0, 1),
    )  # fmt: skip
    assert torch.equal(positive, pyg_nn.Node2Vec.pos_sample(model, torch.arange(256)))
    theirs = pyg_nn.Node2Vec.neg_sample(model, torch.arange(256))
    assert negative.shape == theirs.shape
    rows = 256 * 3 * 2
    assert torch.equal(negative[:rows, 0], theirs[:rows, 0])
    assert (int(negative.min()), int(negative.max())) == (0, 1999)
    edges = set(map(tuple, EDGES.T.tolist()))
    stays = {node for node in range(2000) if node not in set(EDGES[0].tolist())}
    for before, after in positive[:, :2].tolist():
        assert (before, after) in edges or (before == after and before in stays)


def test_pairs_train_the_model_of_pyg() -> None:
    model = pyg_nn.MetaPath2Vec(
        TYPED, 8, BACK_AND_FORTH, walk_length=5, context_size=3, walks_per_node=2,
        num_nodes_dict={"user": 500, "item": 300},
    )  # fmt: skip
    loader = of_types(num_nodes_dict={"user": 500, "item": 300})
    pairs = list(loader)
    assert sum(len(positive) for positive, _ in pairs) == 500 * 2 * (5 + 1 + 1 - 3)
    first, other = pairs[0], model._sample(list(range(64)))
    assert [part.shape for part in first] == [part.shape for part in other]
    assert torch.isfinite(model.loss(*first))
    users, items = (slice(model.start[kind], model.end[kind]) for kind in ("user", "item"))
    ends = {kind: set(map(tuple, own.T.tolist())) for kind, own in TYPED.items()}
    windows = first[0][: 64 * 2]  # they begin at users
    assert ((windows[:, 0] >= users.start) & (windows[:, 0] < users.stop)).all()
    for user, item, _ in windows.tolist():
        assert item == model.dummy_idx or (user - users.start, item - items.start) in ends["user", "likes", "item"]


def test_what_is_wrong_is_named() -> None:
    edges = torch.tensor([[0], [1]])
    check_refused([
        (lambda: Node2VecLoader(edges, 3, 4), ValueError, "context_size must be 3 or less, but is 4"),
        (lambda: Node2VecLoader(edges, 3, 2, p=0.0), ValueError, "p must be above 0"),
        (lambda: Node2VecLoader(edges, 3, 2, batchsize=2), TypeError, "Node2VecLoader has no argument 'batchsize'"),
        (lambda: MetaPath2VecLoader(TYPED, [], 3, 2), ValueError, "metapath must have at least one edge type"),
        (lambda: MetaPath2VecLoader(TYPED, BACK_AND_FORTH[:1], 3, 2), ValueError, "is not"),
    ])  # fmt: skip
    assert isinstance(of_nodes(), gf.DataLoader)
