"""PyG's `ShaDowKHopSampler`: a small subgraph around each of several roots."""

from typing import Any

from graphfeed.ops.arguments import check_count, checked
from graphfeed.pyg.data.data_features import read_features
from graphfeed.pyg.data.data_graph import read_graph
from graphfeed.pyg.data.input_nodes import InputNodes, read_input_nodes
from graphfeed.pyg.data.tables import check_untyped
from graphfeed.pyg.loaders.pyg_loader import PyGLoader
from graphfeed.pyg.loaders.torch_options import TorchOptions
from graphfeed.pyg.stages.induce_trees import InduceTrees
from graphfeed.pyg.stages.to_rooted_batch import ToRootedBatch


class ShaDowKHopSampler(PyGLoader):
    """Makes mini-batches of one subgraph per root, as `torch_geometric.loader.ShaDowKHopSampler` does.

    The nodes around a root are sampled hop by hop; its subgraph has all edges between them. A mini-batch is a `Batch`
    of these subgraphs, with `batch`, `ptr` and `root_n_id`, and with `n_id`, `e_id` and `input_id` besides. `y` is that
    of the roots. The root is the first node of its subgraph. torch-sparse is not needed.

    Args:
        data: A `torch_geometric.data.Data`.
        depth: The number of hops.
        num_neighbors: How many neighbours each node gets in each hop; -1 takes all.
        node_idx: The roots: ids or a mask; None is all nodes.
        replace: Whether an edge may be chosen more than once.
        kwargs: The arguments of torch's `DataLoader`, and some of `graphfeed.DataLoader`; see `NodeLoader`.

    Raises:
        TypeError: `data` is no `Data`.
        ValueError: `data` has types, a number is out of range, or there are no roots.
    """

    is_subgraph = True

    @checked
    def __init__(
        self,
        data: Any,
        depth: int,
        num_neighbors: int,
        node_idx: Any = None,
        replace: bool = False,
        **kwargs: Any,
    ) -> None:
        check_untyped(data, type(self).__name__)
        check_count("depth", depth, 1)
        options = TorchOptions.of(kwargs, type(self).__name__)
        graph, features = read_graph(data).graph, read_features(data)
        pipe = options.source(read_input_nodes(data, InputNodes(node_idx)).items)
        pipe = pipe.sample_neighbor(graph, [num_neighbors] * depth, replace, only_new=True, disjoint=True)
        pipe = ToRootedBatch(self._fill(InduceTrees(pipe, graph), features), "y" in features.node_names[None])
        super().__init__(pipe, options, data)
        self.depth, self.num_neighbors, self.replace = depth, num_neighbors, replace
        self.node_idx = node_idx
