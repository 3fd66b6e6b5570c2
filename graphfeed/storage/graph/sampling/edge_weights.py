"""The weights of a graph's edges as kernels take them."""

import torch

from graphfeed import ops
from graphfeed.ops.memory import is_page_locked
from graphfeed.storage.graph.graph_arrays import GraphArrays
from graphfeed.storage.graph.sampling_request import SamplingRequest


def weights_for(graph: GraphArrays, request: SamplingRequest) -> torch.Tensor | ops.GuidedSums | None:
    """Return the running sums of weights for a request, with guides if its kernel takes them; None without weights."""
    if request.probs_name is None:
        return None
    one_type = graph.node_type_to_id is None and all(fanout.numel() == 1 for fanout in request.fanouts)
    all_hops = one_type and request.strategy == "uniform" and request.deduplicate and not request.disjoint
    # Page-locked arrays are for a GPU, whose kernels bisect the sums.
    on_cpu = graph.indices.is_cpu and not is_page_locked(graph.indices)
    return (graph.guided_sums if all_hops and on_cpu else graph.cumulative_weights)(request.probs_name)
