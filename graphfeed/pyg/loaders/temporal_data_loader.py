"""Events in the order of their times, as mini-batches of PyG's `TemporalData`."""

import copy
from typing import Any

import torch

from graphfeed.datapipes import ItemSampler, MiniBatch, Transform
from graphfeed.loader import add_ends
from graphfeed.ops.arguments import checked, kind_of
from graphfeed.pyg.data.features_of_data import HOLE
from graphfeed.pyg.data.tables import import_pyg
from graphfeed.pyg.loaders.pyg_loader import PyGLoader, TorchOptions
from graphfeed.storage import ItemSet


def gather_events(rows: Any, names: Any) -> Any:
    minibatch: Any = MiniBatch()
    minibatch.events = dict(zip(names, rows, strict=True))
    return minibatch


class ToTemporalData(Transform, draws=True, keeps_size=True, seeded=False):
    """Turns events into a PyG `TemporalData`, with negative destinations drawn by the mini-batch's key if requested."""

    template: Any
    """A `TemporalData` that each mini-batch copies, with placeholders for the attributes of events."""
    ratio: float = 0.0
    """Number of negative destinations per event."""
    bounds: tuple[int, int] = (0, 0)
    """The lowest and the highest id of a negative destination."""

    def __call__(self, minibatch: Any) -> Any:
        events = copy.copy(self.template)
        for name, values in minibatch.events.items():
            events[name] = values
        add_ends(events, minibatch.key, self.number, self.ratio, self.bounds)
        return events


class TemporalDataLoader(PyGLoader):
    """Yields mini-batches of successive events, as `torch_geometric.loader.TemporalDataLoader` does.

    Each is a `TemporalData` of the next events, with `n_id`, the sorted ids of all of its nodes. If negatives are
    requested, `neg_dst` has ids drawn uniformly between the lowest and the highest destination of the data, which may
    include true ones. They depend only on the random seed, the epoch and the mini-batch.

    Args:
        data: A `torch_geometric.data.TemporalData` in non-decreasing order of time.
        batch_size: Number of events per mini-batch.
        neg_sampling_ratio: Number of negative destinations per event.
        kwargs: As for `NodeLoader`, except the arguments that would change the order.

    Raises:
        ValueError: Times decrease, there are no events, the ratio is negative, or an argument would change the order.

    Example:
        >>> from torch_geometric.data import TemporalData
        >>> data = TemporalData(src=torch.tensor([0, 1, 0]), dst=torch.tensor([3, 3, 2]), t=torch.tensor([5, 5, 8]))
        >>> [(batch.t.tolist(), batch.n_id.tolist()) for batch in TemporalDataLoader(data, batch_size=2)]
        [([5, 5], [0, 1, 3]), ([8], [0, 2])]
    """

    how_to_share = "give each rank its own share of data"

    @checked
    def __init__(self, data: Any, batch_size: int = 1, neg_sampling_ratio: float = 0.0, **kwargs: Any) -> None:
        module = import_pyg("torch_geometric.data", type(self).__name__)
        if not isinstance(data, module.TemporalData):
            raise TypeError(f"data must be a TemporalData of PyG, but is {kind_of(data)}")
        for name in ("shuffle", "sampler", "batch_sampler"):
            if kwargs.get(name):
                raise ValueError(f"events are ordered by time, so {name} can't be given; leave it out")
        missing = [name for name in ("src", "dst", "t") if name not in data]
        if missing or len(data.t) == 0:
            raise ValueError(f"data has no {(missing or ['events'])[0]}; give src, dst and t of at least one event")
        check_times(data.t)
        if not neg_sampling_ratio >= 0:
            raise ValueError(f"neg_sampling_ratio must be 0 or more, but is {neg_sampling_ratio}")
        options = TorchOptions.of({**kwargs, "batch_size": batch_size}, type(self).__name__)
        template = copy.copy(data)
        members = {  # as in PyG, tensors with one row per event belong to the events
            name: value
            for name, value in data.stores[0].items()
            if isinstance(value, torch.Tensor) and value.dim() > 0 and len(value) == len(data.t)
        }
        for name in members:
            template[name] = HOLE  # keeps its position among the attributes
        pipe = options.source(ItemSet(tuple(members.values()), names=tuple(members)))
        pipe = pipe.rewrite(
            lambda stage: stage.changed(minibatcher=gather_events) if isinstance(stage, ItemSampler) else stage
        )
        bounds = (int(data.dst.min()), int(data.dst.max())) if neg_sampling_ratio else (0, 0)
        pipe = ToTemporalData(pipe, template, neg_sampling_ratio, bounds)
        super().__init__(pipe, options)
        self.data, self.events_per_batch, self.neg_sampling_ratio = data, batch_size, neg_sampling_ratio


def check_times(times: torch.Tensor) -> None:
    falls = (times[1:] < times[:-1]).nonzero()
    if len(falls):
        row = int(falls[0])
        raise ValueError(
            f"times must not decrease, but t[{row + 1}] is {times[row + 1].item()} after {times[row].item()}; sort the "
            "events, for example data[data.t.argsort(stable=True)]"
        )
