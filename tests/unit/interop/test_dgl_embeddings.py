"""DGL's embeddings and sparse optimizers, compared with a reference that follows DGL's formulas."""

from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.interop.dgl import NodeEmbedding, SparseAdagrad, SparseAdam
from tests.kinds.digests import assert_same
from tests.kinds.refusals import check_refused

STEPS = [[1, 4, 1], [4], [0, 1, 1, 1], [2, 4]]


def first_rows(table: torch.Tensor) -> torch.Tensor:
    return table + torch.arange(table.numel()).reshape(table.shape) / 10


def reference(kind: str) -> torch.Tensor:
    """Return the rows after the steps, by `_sparse_optim.py` of DGL 2.1, row by row."""
    rows = first_rows(torch.zeros(5, 3)).double()
    mean, power, counts = torch.zeros(5, 3).double(), torch.zeros(5, 3).double(), [0] * 5
    for ids in STEPS:
        for node in set(ids):
            places = [place for place, other in enumerate(ids) if other == node]
            gradient = torch.stack([gradients(ids)[place].double() for place in places]).mean(0)
            counts[node] += 1
            if kind == "adagrad":
                power[node] += gradient**2
                rows[node] -= 0.1 * gradient / (power[node].sqrt() + 1e-10)
            else:
                mean[node] = 0.9 * mean[node] + 0.1 * gradient
                power[node] = 0.999 * power[node] + 0.001 * gradient**2
                scaled = mean[node] / (1 - 0.9 ** counts[node])
                rows[node] -= 0.1 * scaled / ((power[node] / (1 - 0.999 ** counts[node])).sqrt() + 1e-8)
    return rows.float()


def gradients(ids: list[int]) -> torch.Tensor:
    return torch.randn(len(ids), 3, generator=torch.Generator().manual_seed(len(ids)))


@pytest.mark.parametrize("kind", ["adagrad", "adam"])
def test_optimizers_average_equal_ids_and_count_the_steps_of_rows(kind: str) -> None:
    table = NodeEmbedding(5, 3, "user", init_func=first_rows)
    optimizer: Any = SparseAdagrad([table], lr=0.1) if kind == "adagrad" else SparseAdam([table], lr=0.1)
    for ids in STEPS:
        # In the order of DGL's examples, where gradients are cleared after the rows were requested.
        rows = table(torch.tensor(ids), "cpu")
        (rows * 7).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.zero_grad()
        (rows * gradients(ids)).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.step()  # no gradient is used twice
    torch.testing.assert_close(table.weight, reference(kind), rtol=1e-4, atol=1e-5)


def test_several_tables_resume_from_one_state() -> None:
    def make(scale: float) -> Any:
        tables = [NodeEmbedding(4, 2, name, init_func=lambda zeros: zeros + scale) for name in ("user", "item")]
        return tables, SparseAdam(tables, 0.1)

    tables, optimizer = make(1.0)
    others, resumed = make(2.0)
    for step in range(4):
        if step == 2:
            resumed.load_state_dict(optimizer.state_dict())
        for own, used in ((tables, optimizer), (others, resumed)):
            (own[0](torch.tensor([step])) * own[1](torch.tensor([3]))).sum().backward()
            used.step()
    for table, other in zip(tables, others, strict=True):
        assert_same(other.state_dict(), table.state_dict())
    with pytest.raises(KeyError):
        resumed.load_state_dict({})


def test_first_rows_may_be_filled_in_place_or_have_another_dtype() -> None:
    def fill(zeros: torch.Tensor) -> torch.Tensor:
        return zeros.fill_(0.25)

    for init_func in (fill, lambda zeros: torch.nn.init.constant_(zeros, 0.25), lambda zeros: zeros.double() + 0.25):
        assert NodeEmbedding(4, 2, "user", init_func).weight.tolist() == [[0.25, 0.25]] * 4


def test_a_pipeline_fetches_from_it() -> None:
    table = NodeEmbedding(4, 2, "user", torch.ones_like)
    assert (table.num_embeddings, table.embedding_dim, table.name) == (4, 2, "user")
    store = gf.BasicFeatureStore({("node", None, "x"): table})
    optimizer = SparseAdagrad([table], 0.5)
    pipe: Any = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2)
    for minibatch in gf.DataLoader(pipe.fetch_feature(store, ["x"]), num_workers=2, seed=0):
        minibatch.node_features["x"].sum().backward()
        optimizer.step()
    assert table.weight.tolist() == [[0.5, 0.5]] * 4
    with torch.no_grad():
        assert not table(torch.tensor([0])).requires_grad


def test_what_needs_dgl_is_refused() -> None:
    table = NodeEmbedding(4, 2, "user")
    no_table: Any = torch.ones(1)
    check_refused(
        [
            (lambda: NodeEmbedding(4, 2, "user", device="cuda"), NotImplementedError, "leave out device and partition"),
            (lambda: NodeEmbedding(4, 2, "user", partition=1), NotImplementedError, "leave out device and partition"),
            (lambda: SparseAdam([table], 0.1, dtype=torch.float16), NotImplementedError, "must be torch.float32"),
            (lambda: SparseAdam([table], -0.1), ValueError, "lr must be at least 0"),
            (lambda: SparseAdam([table], 0.1, (0.9, 1.0)), ValueError, "betas must be at least 0 and below 1"),
            (
                lambda: SparseAdagrad([table, NodeEmbedding(3, 2, "user")], 0.1),
                ValueError,
                "names of params must differ",
            ),
            (lambda: SparseAdam([], 0.1), TypeError, "params must be a list of NodeEmbedding"),
            (lambda: SparseAdagrad([no_table], 0.1), TypeError, "params must be a list of NodeEmbedding"),
        ]
    )
