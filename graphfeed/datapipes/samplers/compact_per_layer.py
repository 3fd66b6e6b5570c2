"""Relabel a hop that has no row ids."""

import copy

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.transform import Transform
from graphfeed.storage.graph import compact_hop


class CompactPerLayer(Transform, name="compact_per_layer", ignored=("asynchronous", "cooperative"), seeded=False):
    """Relabels the outermost hop: its sources become positions in its row ids, which become the `input_nodes`.

    It comes after `sample_per_layer`, which has an example, or after a stage that modifies the new subgraph.

    Args:
        datapipe: Source of the mini-batches.
        deduplicate: Whether a node gets one row, however many edges lead to it; otherwise, each edge has a separate
            row.

    Raises:
        ValueError: When it runs: there is no subgraph, or it already has row ids, or it has no column ids.
    """

    deduplicate: bool

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        if not minibatch.sampled_subgraphs:
            raise ValueError("the mini-batch has no sampled_subgraphs yet; put sample_per_layer before")
        layer, *inner = minibatch.sampled_subgraphs
        if layer.original_row_node_ids is not None:
            raise ValueError("the outermost layer already has original_row_node_ids; put sample_per_layer before")
        result = copy.copy(minibatch)
        compacted = compact_hop(layer, deduplicate=self.deduplicate)
        result.sampled_subgraphs = [compacted, *inner]
        result.input_nodes = compacted.original_row_node_ids
        return result
