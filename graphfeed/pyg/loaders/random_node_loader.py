"""PyG's loader of the subgraphs of random parts of the nodes."""

from typing import Any

from graphfeed.ops.arguments import check_count, checked
from graphfeed.pyg import samplers
from graphfeed.pyg.data.tables import tables_of
from graphfeed.pyg.loaders.node_loader import NodeLoader


class RandomNodeLoader(NodeLoader):
    """Splits the nodes into parts and yields the subgraph of each, as `torch_geometric.loader.RandomNodeLoader` does.

    With `shuffle=True`, each epoch has other random parts. The nodes of a mini-batch are in the order in which they
    were drawn, and its edges are grouped by destination. It also has `n_id`, `e_id` and `input_id`.

    Args:
        data: A `torch_geometric.data.Data` or `HeteroData`; a part has nodes of all types.
        kwargs: As for `NodeLoader`, without `batch_size`.

    Raises:
        ValueError: `num_parts` is below 1, or there are no nodes.
    """

    is_subgraph = True

    @checked
    def __init__(self, data: Any, num_parts: int, **kwargs: Any) -> None:
        tables = tables_of(data)
        check_count("num_parts", num_parts, 1)
        nodes = dict.fromkeys(tables.nodes) if tables.typed else None
        # No neighbours, but all edges among the seeds.
        sampler = samplers.NeighborSampler(data, [0], "induced")
        size = max(1, -(-sum(map(tables.count_nodes, tables.nodes)) // num_parts))
        super().__init__(data, sampler, nodes, batch_size=size, **kwargs)
        self.num_parts = num_parts
