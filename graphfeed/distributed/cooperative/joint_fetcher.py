"""Fetch the features of a joint mini-batch: each rank reads the rows that it owns, once for all ranks."""

import copy

import torch

from graphfeed.datapipes import FeatureFetcher, MiniBatch, Transform
from graphfeed.datapipes.pipeline import BatchSizeEstimate
from graphfeed.distributed.cooperative.exchange import RowExchange
from graphfeed.storage.memory import Cache, tensors_in

FIRST_STEP = 1000
"""The steps of fetching follow those of sampling, one per hop."""


class WrappedFetcher:
    """The fetcher that the user wrote, in an object that is no stage, so that it is not taken for a source."""

    def __init__(self, fetcher: FeatureFetcher) -> None:
        self.fetcher = fetcher.changed(cooperative=False)

    def list_caches(self) -> list[tuple[str, Cache]]:
        return self.fetcher.feature_store.list_caches()

    def __repr__(self) -> str:
        return repr(self.fetcher.node_feature_keys)


class JointFetcher(Transform):
    """Fetches the features of a joint mini-batch, in place of a fetcher with `cooperative=True`.

    Each rank reads the rows of the nodes that it owns, and sends them to the ranks that need them. `node_features` has
    the rows of `input_nodes`, on their device. The edges of a hop are its own on each rank, and so are their features.
    """

    wrapped: WrappedFetcher

    def __call__(self, minibatch: MiniBatch) -> MiniBatch:
        # The outermost hop comes first.
        exchange: RowExchange | None = getattr(next(iter(minibatch.sampled_subgraphs or ()), None), "exchange", None)
        if exchange is None:
            raise ValueError("the outermost hop does not say who owns its nodes; a stage before the fetch replaced it")
        # The user's fetcher sees the nodes that this rank owns in place of those that it needs.
        given = copy.copy(minibatch)
        given.input_nodes = exchange.owned
        result = self.wrapped.fetcher(given)
        result.input_nodes = minibatch.input_nodes
        if result.node_features is not None:
            # A name is a pair with the type, if the graph has types.
            typed = isinstance(exchange.owned, dict)
            # Ranks send from memory.
            rows = [(name[0] if typed else None, own.cpu()) for name, own in result.node_features.items()]
            arrived = exchange.trade(rows, FIRST_STEP + self.wrapped.fetcher.position)
            device = next((part.device for part in tensors_in(minibatch.input_nodes)), torch.device("cpu"))
            moved = [part.to(device) for part in arrived]
            result.node_features = dict(zip(result.node_features, moved, strict=True))
        return result

    def may_run_in_threads(self) -> bool:
        """Tell whether worker threads read every feature as well as the main thread does."""
        return self.wrapped.fetcher.may_run_in_threads()

    def estimate_size(self, before: BatchSizeEstimate | None) -> BatchSizeEstimate | None:
        """Return the estimate of the fetcher, for a mini-batch of the rank's own."""
        return self.wrapped.fetcher.estimate_size(before)
