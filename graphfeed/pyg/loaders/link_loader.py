"""PyG's loaders of edges: mini-batches around seed edges, with any sampler."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from graphfeed.ops.arguments import checked, kind_of
from graphfeed.pyg.data.features_of_data import features_of_data
from graphfeed.pyg.data.read_input import InputEdges, NegativeSampling, read_input_edges
from graphfeed.pyg.loaders.pyg_loader import SHARE, ExtraOptions, PyGLoader, read_options, weights_of
from graphfeed.pyg.stages.sample_with import SampleWith, check_sampler
from graphfeed.pyg.stages.seed_links import exclude_after, read_exclusions


class LinkLoader(PyGLoader):
    """Yields mini-batches around edges, sampled by any of PyG's samplers or by `graphfeed.pyg.NeighborSampler`.

    The arguments, their order and the batches are those of `torch_geometric.loader.LinkLoader`. Samplers are used as in
    `NodeLoader`, but PyG's by their `sample_from_edges`.

    Without negatives, or with binary ones, a batch has `edge_label_index`, `edge_label` and `edge_label_time`; with
    triplets, `src_index`, `dst_pos_index`, `dst_neg_index` and `seed_time`. The nodes of a negative exist at the time
    of its edge. With `NegativeSampling(strict=True)`, negatives are never edges of the graph. As in PyG, seed edges are
    sampled like others unless `exclude_seed_edges` is given.

    Args:
        edge_label_index: The seeds, shape (2, N); None: all edges. With types: an edge type, or a tuple of one and
            either of these, or, unlike in PyG, a dict of these by edge type; without types, the tuple's type is None.
            If it is a dict, so are the other arguments for seeds. A mini-batch then has seeds of all types in turn,
            and their attributes, triplets included, are in the store of their edge type.
        edge_label: The label of each seed. With binary negatives, labels whose minimum is 0 are raised by one.
        edge_label_time: The time of each seed.
        neg_sampling: A `NegativeSampling`, a mode, or (mode, amount).
        neg_sampling_ratio: The amount of binary negatives.
        kwargs: See `NodeLoader`, as for arguments not listed here. Also `exclude_seed_edges`: True removes sampled
            edges that join the endpoints of a seed of the mini-batch, "reverse" or an edge type also those in the
            other direction (`ExtraOptions`); or a dict of these by edge type.
    """

    how_to_share = f"give each rank its own share of edge_label_index, or pass {SHARE}"

    @checked
    def __init__(
        self,
        data: Any,
        link_sampler: Any,
        edge_label_index: Any = None,
        edge_label: torch.Tensor | Mapping[Any, torch.Tensor] | None = None,
        edge_label_time: torch.Tensor | Mapping[Any, torch.Tensor] | None = None,
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        custom_cls: Any = None,
        input_id: torch.Tensor | Mapping[Any, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        check_sampler(link_sampler, of_edges=True)
        more = ExtraOptions.split_from(kwargs, link_sampler, "time_window", "exclude_seed_edges", "as_edge_index")
        options = read_options(type(self).__name__, data, custom_cls, kwargs)
        try:
            negatives = NegativeSampling.cast(("binary", neg_sampling_ratio) if neg_sampling_ratio else neg_sampling)
        except (TypeError, ValueError) as error:
            name = "neg_sampling_ratio" if neg_sampling_ratio else "neg_sampling"
            raise type(error)(f"{name}: {error}") from error
        given = InputEdges(edge_label_index, edge_label, edge_label_time, input_id, more.time_window)
        edges = read_input_edges(data, given, negatives)
        pipe = options.source(edges.items)
        neighborhoods = getattr(link_sampler, "neighborhoods", None)
        if neighborhoods is None and len(edges.edge_types) > 1:
            raise TypeError(
                f"link_sampler is {kind_of(link_sampler)}, which samples around edges of one type, but "
                f"edge_label_index has {len(edges.edge_types)}; give one, or a NeighborSampler of graphfeed.pyg"
            )
        if neighborhoods is None:
            pipe = SampleWith(pipe, link_sampler, edges.input_type, of_edges=True, negatives=negatives)
        else:
            pipe = neighborhoods.append_links_to(pipe, negatives, edges.edge_types)
        time_name = getattr(neighborhoods, "edge_time", None)
        excluded = read_exclusions(more.exclude_seed_edges, data, edges.edge_types, time_name)
        if excluded:
            pipe = exclude_after(pipe, excluded)
        self.link_sampler, self.transform = link_sampler, transform
        self.edge_label_index, self.neg_sampling = edge_label_index, negatives
        self.transform_sampler_output, self.filter_per_worker = transform_sampler_output, filter_per_worker
        features = features_of_data(data, custom_cls, weights_of(link_sampler))
        pipe = self._fill(pipe, features, more.as_edge_index)
        super().__init__(pipe, options, data)
