"""Give row ids to a hop that has none."""

import copy

from graphfeed.datapipes.minibatch import MiniBatch
from graphfeed.datapipes.transform import Transform
from graphfeed.storage.graph import compact_hop


class CompactPerLayer(Transform, name="compact_per_layer", ignored=("asynchronous", "cooperative")):
    """Relabels the outermost hop: its sources become positions in its row ids, which become the `input_nodes`.

    It follows `sample_per_layer`, which shows an example, or a stage that changed the subgraph after that.

    Raises:
        ValueError: When it runs: no subgraph, one that has row ids already, or one without column ids.
    """

    deduplicate: bool
    """Whether a node gets one row, however many edges lead to it; otherwise, each edge has a row of its own."""

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        if not minibatch.sampled_subgraphs:
            raise ValueError("the mini-batch has no sampled_subgraphs yet; put sample_per_layer before")
        layer, *inner = minibatch.sampled_subgraphs
        if layer.original_row_node_ids is not None:
            raise ValueError("the outermost layer has its original_row_node_ids already; put sample_per_layer before")
        result = copy.copy(minibatch)
        compacted = compact_hop(layer, deduplicate=self.deduplicate)
        result.sampled_subgraphs = [compacted, *inner]
        result.input_nodes = compacted.original_row_node_ids
        return result
