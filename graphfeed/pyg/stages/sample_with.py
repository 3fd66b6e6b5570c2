"""A PyG sampler as a stage."""

from typing import Any

from graphfeed.datapipes import MiniBatch, Transform
from graphfeed.ops.arguments import brief
from graphfeed.pyg.data.read_input import NegativeSampling
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.pyg.stages.sampler_output import SampledMiniBatch, as_sampled, only_type
from graphfeed.pyg.stages.seed_links import link_fields


class SampleWith(Transform):
    """Calls a `torch_geometric.sampler.BaseSampler` for the seeds of each mini-batch.

    The draws of the sampler from the global generators of torch, NumPy and Python are seeded for each mini-batch, as
    for every stage from outside of this package (`Transform`).
    """

    sampler: Any
    input_type: Any = None
    """Type of the seeds: a string for nodes, a tuple of three strings for edges."""
    report_time: bool = False
    """Whether the data get the times of seed nodes."""
    of_edges: bool = False
    """Whether the seeds are edges; `negatives` are drawn for these."""
    negatives: NegativeSampling | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sampler(self.sampler, self.of_edges)

    def __call__(self, minibatch: MiniBatch) -> SampledMiniBatch:
        ids, seeds, labels, times = (only_type(getattr(minibatch, name, None)) for name in MEMBERS)
        module = import_pyg("torch_geometric.sampler", "SampleWith")
        if not self.of_edges:
            result = as_sampled(minibatch, report_time=self.report_time)
            given = module.NodeSamplerInput(ids, seeds, times, self.input_type)
            result.output = self.sampler.sample_from_nodes(given)
        else:
            wanted, negatives, result = self.negatives, None, SampledMiniBatch(key=minibatch.key)
            given = module.EdgeSamplerInput(ids, seeds[:, 0], seeds[:, 1], labels, times, self.input_type)
            if wanted is not None:
                negatives = module.NegativeSampling(wanted.mode, wanted.amount, wanted.src_weight, wanted.dst_weight)
            result.output = self.sampler.sample_from_edges(given, neg_sampling=negatives)
            triplets = wanted is not None and wanted.is_triplet()
            result.of_seeds = link_fields(result.output.metadata, self.input_type, triplets=triplets)
        permutation = getattr(self.sampler, "edge_permutation", None)
        result.output.edge = permuted(result.output.edge, permutation)
        return result


def check_sampler(sampler: Any, of_edges: bool = False) -> None:
    """Raise a TypeError unless a sampler can sample around nodes, or around edges if `of_edges`."""
    method = "sample_from_edges" if of_edges else "sample_from_nodes"
    if not hasattr(sampler, method):
        name = "link_sampler" if of_edges else "node_sampler"
        raise TypeError(
            f"{name} must be a sampler with {method}, like torch_geometric.sampler.BaseSampler, but is {brief(sampler)}"
        )


MEMBERS = ("input_id", "seeds", "labels", "timestamp")


def permuted(edge: Any, permutation: Any) -> Any:
    # A sampler that reorders the edges provides their ids in the data, as PyG's samplers do.
    if edge is None or permutation is None:
        return edge
    if isinstance(edge, dict):
        return {edge_type: permuted(ids, permutation.get(edge_type)) for edge_type, ids in edge.items()}
    return permutation[edge.long()]
