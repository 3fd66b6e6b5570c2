"""The loops of PyG's examples that train on subgraphs, in which only the import of their loaders is changed.

The names of the tests are those of the programs. The data are small, and created here.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from graphfeed.pyg import GraphSAINTRandomWalkSampler
from graphfeed.pyg.data import import_pyg
from tests.programs.test_pyg_programs import CLASSES, PYG, citations, one_thread, step

__all__ = ["one_thread"]
"""The fixture, which also applies to the tests here."""
degree = import_pyg("torch_geometric.utils", "tests").degree


def accuracy(out: torch.Tensor, data: Any) -> float:
    return float((out.argmax(dim=-1) == data.y)[~data.train_mask].float().mean())


class Net(nn.Module):
    """The net of `graph_saint.py`, with two layers."""

    def __init__(self, hidden_channels: int) -> None:
        super().__init__()
        self.conv1 = PYG.GraphConv(8, hidden_channels)
        self.conv2 = PYG.GraphConv(hidden_channels, hidden_channels)
        self.lin = nn.Linear(2 * hidden_channels, CLASSES)

    def set_aggr(self, aggr: str) -> None:
        self.conv1.aggr = aggr
        self.conv2.aggr = aggr

    def forward(self, x0: torch.Tensor, edge_index: torch.Tensor, edge_weight: torch.Tensor) -> torch.Tensor:
        x1 = functional.relu(self.conv1(x0, edge_index, edge_weight))
        x2 = functional.relu(self.conv2(x1, edge_index, edge_weight))
        return self.lin(torch.cat([x1, x2], dim=-1)).log_softmax(dim=-1)  # type: ignore[no-any-return]


def test_graph_saint(tmp_path: Path) -> None:
    data = citations()
    _, col = data.edge_index
    data.edge_weight = 1.0 / degree(col, data.num_nodes)[col]  # Norm by in-degree.
    loader = GraphSAINTRandomWalkSampler(
        data, batch_size=20, walk_length=2, num_steps=5, sample_coverage=20, save_dir=str(tmp_path), num_workers=2
    )
    model = Net(hidden_channels=16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    model.train()
    model.set_aggr("add")
    for _ in range(8):
        total_examples = 0
        for batch in loader:
            edge_weight = batch.edge_norm * batch.edge_weight
            out = model(batch.x, batch.edge_index, edge_weight)
            loss = functional.nll_loss(out, batch.y, reduction="none")
            step(optimizer, (loss * batch.node_norm)[batch.train_mask].sum())
            total_examples += batch.num_nodes
        assert 5 * 20 < total_examples < 5 * 60
    model.eval()
    model.set_aggr("mean")
    assert accuracy(model(data.x, data.edge_index, data.edge_weight), data) > 0.9
