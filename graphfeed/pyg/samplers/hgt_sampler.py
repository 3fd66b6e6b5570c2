"""The sampler of `HGTLoader`, behind the interface of PyG's samplers."""

from collections.abc import Mapping, Sequence
from typing import Any

from graphfeed.datapipes import Datapipe, IterableSource
from graphfeed.pyg.data.data_graph import read_graph
from graphfeed.pyg.samplers.neighbor_sampler import StageSampler
from graphfeed.pyg.stages.to_sampler_output import ToSamplerOutput


class HGTSampler(StageSampler):
    """Samples as `torch_geometric.sampler.HGTSampler` does, and runs without torch-sparse.

    PyG's own `NodeLoader` takes it too. There, and where you call it, its draws are seeded by torch's default
    generator; in a loader of this package, by the mini-batch's key.

    Args:
        data: A `torch_geometric.data.HeteroData`.
        num_samples: How many nodes each hop samples, the seeds' own hop first: of each node type, or by node type.
        is_sorted: Has no effect: edges are grouped by destination by counting.
        share_memory: Has no effect: a graph moves to shared memory when processes need it.

    Raises:
        ValueError: `data` has no types, or a node type has no numbers, or a number is negative.
    """

    def __init__(
        self,
        data: Any,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        is_sorted: bool = False,
        share_memory: bool = False,
    ) -> None:
        del is_sorted, share_memory
        self.graph = read_graph(data).graph
        self.num_samples = num_samples
        self.append_to(IterableSource([]))  # refuses wrong arguments now

    def append_to(self, pipe: Datapipe, report_time: bool = False) -> Datapipe:
        """Return a pipeline of seeds with the stages behind it that sample."""
        pipe = pipe.sample_by_budget(self.graph, self.num_samples)
        return ToSamplerOutput(pipe, report_time=report_time, subgraph_type="induced")

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        """Raise: PyG's sampler has no answer to edges either."""
        raise NotImplementedError("HGTSampler samples around nodes alone; sample around edges with NeighborSampler")
