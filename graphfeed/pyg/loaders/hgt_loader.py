"""PyG's `HGTLoader`: as many nodes of each type, with all edges among them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphfeed.ops.arguments import checked
from graphfeed.pyg import samplers
from graphfeed.pyg.loaders.node_loader import NodeLoader


class HGTLoader(NodeLoader):
    """Makes mini-batches by the sampling of the heterogeneous graph transformer, as `torch_geometric.loader.HGTLoader`.

    Each hop samples a given number of nodes of each type, those more likely that have many edges to the nodes before
    (see `graphfeed.BudgetSampler`). A mini-batch has all edges among them. The nodes of each type are in the order in
    which they were sampled, the seeds first. torch-sparse is not needed.

    Args:
        data: A `torch_geometric.data.HeteroData`.
        num_samples: How many nodes each hop samples, the seeds' own hop first: of each node type, or by node type.
        input_nodes: The seeds: a node type, a tuple of one and ids, a mask or None, or a dict of these by node type.
        is_sorted: Has no effect: edges are grouped by destination by counting.
        transform: A function of each `HeteroData`.
        transform_sampler_output: A function of each sampler's output, before features are fetched.
        kwargs: See `NodeLoader`, as for the arguments that are not listed here.

    Raises:
        TypeError: `data` is no data of PyG's.
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
