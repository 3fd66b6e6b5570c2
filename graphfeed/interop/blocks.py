"""Sampled subgraphs as DGL's blocks."""

from typing import Any

import torch

from graphfeed.datapipes.pipeline.optional import import_optional
from graphfeed.storage import CSCFormatBase, SampledSubgraph

INT32_MAX = torch.iinfo(torch.int32).max


def compute_blocks(subgraphs: list[SampledSubgraph]) -> list[Any]:
    """Return a DGL block for each subgraph; the subgraphs stay as they are.

    Ids are int32 where all counts fit, for DGL is quicker with them. The first block's source nodes have their ids as
    `dgl.NID`, each block's edges theirs as `dgl.EID`.

    Raises:
        ImportError: DGL is not installed.
        ValueError: A subgraph without row or column ids.
    """
    dgl = import_optional("dgl", "blocks", "pip install dgl, or use sampled_subgraphs and their to_pyg()")
    blocks = [make_block(dgl, subgraph) for subgraph in subgraphs]
    for block, subgraph in zip(blocks, subgraphs, strict=True):
        if isinstance(subgraph.original_edge_ids, dict):
            for edge_type, ids in subgraph.original_edge_ids.items():
                block.edges[tuple(edge_type.split(":"))].data[dgl.EID] = ids
        elif subgraph.original_edge_ids is not None:
            block.edata[dgl.EID] = subgraph.original_edge_ids
    rows = subgraphs[0].original_row_node_ids if subgraphs else None
    if isinstance(rows, dict):
        for node_type, ids in rows.items():
            blocks[0].srcnodes[node_type].data[dgl.NID] = ids
    elif rows is not None:
        blocks[0].srcdata[dgl.NID] = rows
    return blocks


def make_block(dgl: Any, subgraph: SampledSubgraph) -> Any:
    """Return one subgraph as a block without data."""
    counts = []
    for name in ("original_row_node_ids", "original_column_node_ids"):
        ids = getattr(subgraph, name)
        if ids is None:
            raise ValueError(f"Missing `{name}` in sampled subgraph; a block needs to know how many nodes it has")
        counts.append({kind: len(own) for kind, own in (ids if isinstance(ids, dict) else {"": ids}).items()})
    csc = subgraph.sampled_csc
    parts = csc if isinstance(csc, dict) else {"": csc}
    most = max([*counts[0].values(), *(len(part.indices) for part in parts.values())], default=0)
    dtype = torch.int32 if most <= INT32_MAX else torch.int64
    data = {tuple(kind.split(":")): triple(part, dtype) for kind, part in parts.items()}
    if isinstance(csc, dict):
        return dgl.create_block(data, num_src_nodes=counts[0], num_dst_nodes=counts[1])
    return dgl.create_block(data[("",)], num_src_nodes=counts[0][""], num_dst_nodes=counts[1][""])


def triple(csc: CSCFormatBase, dtype: torch.dtype) -> tuple[str, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return the edges as DGL takes them, with their positions as edge ids."""
    positions = torch.arange(len(csc.indices), dtype=dtype, device=csc.indices.device)
    return "csc", (csc.indptr.to(dtype), csc.indices.to(dtype), positions)
