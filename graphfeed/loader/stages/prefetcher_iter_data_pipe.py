"""Prefetching that a pipeline asks for itself."""

from dataclasses import field

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.loader.stages.prefetch import Prefetch
from graphfeed.ops.checks import check_count


class PrefetcherIterDataPipe(Prefetch, name="prefetch"):
    """Runs what comes before it in a thread of its own, some mini-batches ahead.

    The loader prefetches by itself where that helps; this is for pipelines that run without it, or that want more.

    Raises:
        ValueError: A buffer size below 1.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> [batch.seeds.tolist() for batch in ItemSampler(ItemSet(3, names="seeds"), 1).prefetch()]
        [[0], [1], [2]]
    """

    datapipe: Datapipe
    buffer_size: int = 10
    """How many mini-batches ahead the thread may run."""
    timeout_seconds: float = field(default=600.0, repr=False)
    """How long a mini-batch may take before the wait for it fails."""

    inserted = False
    passes_on = True

    def __post_init__(self) -> None:
        check_count("buffer_size", self.buffer_size, 1)
