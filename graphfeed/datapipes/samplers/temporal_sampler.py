"""The base class of temporal samplers."""

from dataclasses import field, replace
from typing import Any, Literal

import torch

from graphfeed.datapipes.samplers.fanout_sampler import FanoutSampler
from graphfeed.ops.arguments import brief
from graphfeed.storage import TemporalQuery
from graphfeed.storage.graph import HopTime, SamplingRequest, Seeds, Strategy, from_type_dict, to_type_dict


class TemporalSampler(FanoutSampler, seeded=False):
    """Base class of samplers that respect the times of nodes and edges. Subclasses implement `chosen_by`.

    Args:
        datapipe: Source of the mini-batches.
        graph: Graph to sample from.
        fanouts: Number of neighbours to sample per node and hop, the outermost hop first; -1 samples all. A hop has one
            number for all edge types together, or a list, a tensor (in the order of `graph.edge_types`) or a dict with
            one per edge type. Instead of a list of hops, a dict by edge type may have lists with one number per hop.
        replace: Whether an edge may be chosen more than once.
        prob_name: Name of the edge attribute with sampling weights, or with a mask of the edges to sample.
        node_timestamp_attr_name: The node attribute with integer times. A neighbour exists after its time, and always
            if its type has no times.
        edge_timestamp_attr_name: The edge attribute with integer times. An edge exists after its time, and always if
            its type has no times.
        pre_time_window: Length of the window before a node's time, in the unit of the times; None: unlimited. If the
            mini-batch has `pre_time_window`, it has a window for each seed instead: give the item set a member of that
            name.
        hop_time: The time at which the next hop samples around a neighbour: that of the "seed" that led to it, or of
            the "edge".
        visible: "seed" shows each seed all that is earlier than itself. "batch" shows it only what is earlier than the
            whole mini-batch, as for models with a memory that is updated after each mini-batch. Windows still begin at
            the same times.

    Raises:
        KeyError: The graph lacks an attribute that is named; when it runs: seeds of an unknown node type.
        ValueError: No attribute with times, or options that exclude each other; when it runs: a mini-batch without
            `timestamp`, or with another number of times than seeds.
    """

    node_timestamp_attr_name: str | None = None
    edge_timestamp_attr_name: str | None = None
    pre_time_window: int | None = None
    hop_time: HopTime = "seed"
    visible: Literal["seed", "batch"] = field(default="seed", kw_only=True)

    def __post_init__(self) -> None:
        visible: object = self.visible
        if not isinstance(visible, str) or visible not in ("seed", "batch"):
            raise ValueError(f"visible must be 'seed' or 'batch', but is {brief(visible)}")
        super().__post_init__()
        if self.node_timestamp_attr_name is None and self.edge_timestamp_attr_name is None:
            raise ValueError(
                "neither node_timestamp_attr_name nor edge_timestamp_attr_name is given, so no neighbour would be left "
                "out; name the attribute that holds the times, or sample with sample_neighbor"
            )

    @property
    def chosen_by(self) -> Strategy:
        """The strategy that chooses among the eligible edges."""
        raise NotImplementedError(f"{type(self).__name__} must implement chosen_by")

    def make_request(self) -> SamplingRequest:
        """Return the stage's sampling request for the graph."""
        names = (self.node_timestamp_attr_name, self.edge_timestamp_attr_name)
        query = TemporalQuery(*names, self.pre_time_window, self.hop_time)
        if self.visible == "batch" and getattr(self, "inclusive", False):
            raise ValueError("visible='batch' hides the times of the mini-batch, but inclusive=True shows them")
        return replace(super().make_request(), strategy=self.chosen_by, deduplicate=False, temporal=query)

    def seeds_to_sample(self, seeds: Seeds) -> Seeds:
        """Return the seeds, which must have times. If they have no windows, that of the stage applies."""
        if seeds.times is None:
            raise ValueError(
                "seeds_timestamp must be provided for temporal neighbor sampling, but the mini-batch has no timestamp; "
                "name an item of the item set 'timestamp'"
            )
        return seeds if self.visible == "seed" else seen_by_batch(seeds, self.pre_time_window)


def seen_by_batch(seeds: Seeds, window: int | None) -> Seeds:
    """Return seeds with the first time of them all. The windows become shorter, so that they begin where they did."""
    times, windows = to_type_dict(seeds.times), to_type_dict({} if seeds.windows is None else seeds.windows)
    first = min((int(own.min()) for own in times.values() if own.numel()), default=0)
    cut: dict[Any, torch.Tensor] = {kind: torch.full_like(own, first) for kind, own in times.items()}
    if seeds.windows is None and window is not None:
        windows = {kind: torch.full_like(own, window, dtype=torch.int64) for kind, own in times.items()}
    shorter = {kind: (own.long() - (times[kind].long() - first)).clamp(min=0) for kind, own in windows.items()}
    return Seeds(seeds.ids, from_type_dict(cut), from_type_dict(shorter) if shorter else None)
