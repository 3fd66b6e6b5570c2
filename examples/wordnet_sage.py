"""Learn which of 45 fields, such as "noun.food", each meaning in WordNet belongs to: by its definition and its neighbors.

A GraphSAGE (Hamilton and others, NeurIPS 2017) with an own weight for each relation, in plain PyTorch. The same net is
trained again with fan-outs of 0, where each meaning has its definition alone: the difference is what the edges tell.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

import graphfeed as gf

TARGET = "synset"


class SAGELayer(nn.Module):
    """Maps each node's own vector, adds the mapped mean of its neighbors of each relation."""

    def __init__(self, edge_types: Sequence[str], in_size: int, out_size: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_size, out_size)
        self.neighbors = nn.ModuleDict(
            {edge_type: nn.Linear(in_size, out_size, bias=False) for edge_type in edge_types}
        )

    def forward(
        self, edges: dict[str, gf.CSCFormatBase], h: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        for edge_type, csc in edges.items():
            source, _, destination = edge_type.split(":")
            degrees = csc.indptr.diff()
            if destination not in out:  # the rows begin with the columns
                out[destination] = self.own(h[destination][: len(degrees)])
            reached = degrees.nonzero().squeeze(1)
            messages = h[source].index_select(0, csc.indices)
            means = torch.segment_reduce(messages, "mean", lengths=degrees[reached])
            out[destination] = out[destination].index_add(
                0, reached, self.neighbors[edge_type](means)
            )
        return out


class SAGE(nn.Module):
    """Two layers on a bag of words; nodes without features start from zero."""

    def __init__(
        self, edge_types: Sequence[str], in_size: int, hidden_size: int, num_classes: int
    ) -> None:
        super().__init__()
        # A linear layer that skips the zeros of its input.
        self.words = nn.EmbeddingBag(in_size, hidden_size, mode="sum")
        self.layers = nn.ModuleList(
            [
                SAGELayer(edge_types, hidden_size, hidden_size),
                SAGELayer(edge_types, hidden_size, num_classes),
            ]
        )

    def forward(self, batch: Any) -> Tensor:
        h = {}
        for kind, ids in batch.input_nodes.items():
            if 
