"""Feature fetching for joint mini-batches: each rank reads the rows that it owns, once for all ranks."""

import copy

import torch

from graphfeed.datapipes import FeatureFetcher, MiniBatch, Transform
from graphfeed.datapipes.pipeline import BatchSizeEstimate
from graphfeed.distributed.cooperative.exchange import RowExchange
from graphfeed.storage.memory import Cache, tensors_in

FIRST_STEP = 1000
"""Number of the first fetching step, above those of sampling, which has one per hop."""


class WrappedFetcher:
    """The user's fetcher, wrapped in an object that is not a stage, so that it is not mistaken for a source."""

    def __init__(self, fetcher: FeatureFetcher) -> None:
        self.fetcher = fetcher.changed(cooperative=False)

    def list_caches(self) -> list[tuple[str, Cache]]:
        return self.fetcher.feature_store.list_caches()

    def __repr__(self) -> str:
        return repr(self.fetcher.node_feature_keys)


class JointFetcher(Transform, seeded=False):
    """Fetches the features of a joint mini-batch, instead of a fetcher with `cooperative=True`.

    Each rank reads the rows of the nodes that it owns, and sends them to the ranks that need them. `node_features` has
    the rows of `input_nodes`, on their device. Edges are not shared between ranks, so neither are their features.
    """

    wrapped: WrappedFetcher

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        # The outermost hop comes first.
        exchange: RowExchange | None = getattr(next(iter(minibatch.sampled_subgraphs or ()), None), "exchange", None)
        if exchange is None:
            raise ValueError("the outermost hop lacks the owners of its nodes; a stage before the fetcher replaced it")
        # The user's fetcher gets the nodes that this rank owns instead of those that it needs.
        given = copy.copy(minibatch)
        given.input_nodes = exchange.owned
        result = self.wrapped.fetcher(given)
        result.input_nodes = minibatch.input_nodes
        if result.node_features is not None:
            # If the graph has types, a name is a pair with the type.
            typed = isinstance(exchange.owned, dict)
            # Ranks send from CPU memory.
            rows = [(name[0] if typed else None, own.cpu()) for name, own in result.node_features.items()]
            arrived = exchange.trade(rows, FIRST_STEP + self.wrapped.fetcher.position)
            device = next((part.device for part in tensors_in(minibatch.input_nodes)), torch.device("cpu"))
            moved = [part.to(device) for part in arrived]
            result.node_features = dict(zip(result.node_features, moved, strict=True))
        return result

    def may_run_in_threads(self) -> bool:
        """Return whether all features may be read in worker threads."""
        return self.wrapped.fetcher.may_run_in_threads()

    def may_run_in_processes(self) -> bool:
        """Return False, because other processes are not ranks."""
        return False

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return the estimate of the fetcher for a mini-batch that is not joint."""
        return self.wrapped.fetcher.estimate_size(before)
