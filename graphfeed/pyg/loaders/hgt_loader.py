"""PyG's loader of nodes by the sampling of the heterogeneous graph transformer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphfeed.ops.arguments import checked
from graphfeed.pyg import samplers
from graphfeed.pyg.loaders.node_loader import NodeLoader


class HGTLoader(NodeLoader):
    """Yields mini-batches by the sampling of the heterogeneous graph transformer, like `torch_geometric`'s `HGTLoader`.

    Each hop samples a given number of nodes of each type, preferring nodes with many edges to earlier ones (see
    `graphfeed.BudgetSampler`). A mini-batch has all edges among its nodes. The nodes of each type are in the order in
    which they were sampled, seeds first. torch-sparse is not needed.

    Args:
        data: A `torch_geometric.data.HeteroData`.
        num_samples: Number of nodes per hop, the seeds' own hop first: for all node types, or by node type.
        kwargs: See `NodeLoader`, as for arguments not listed here; `is_sorted` has no effect.

    Raises:
        ValueError: `data` has no types, a node type has no numbers, a number is negative, or there are no seeds.
    """

    @checked
    def __init__(
        self,
        data: Any,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        input_nodes: Any,
        is_sorted: bool = False,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            data, samplers.HGTSampler(data, num_samples, is_sorted), input_nodes, transform=transform,
            transform_sampler_output=transform_sampler_output, filter_per_worker=filter_per_worker, **kwargs,
        )  # fmt: skip
