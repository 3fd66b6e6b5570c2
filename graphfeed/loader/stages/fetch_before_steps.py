"""A stage that fetches rows that are trained while the caller trains with earlier mini-batches."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import field
from typing import Any

from graphfeed.datapipes import Datapipe, FeatureFetcher, apply_stages, length
from graphfeed.loader.executors.thread_executor import ThreadExecutor
from graphfeed.loader.run import END, current_run
from graphfeed.loader.stages.in_workers import with_failure
from graphfeed.loader.stages.trained_fetcher import stale_by
from graphfeed.loader.transport.thread_channel import Failure
from graphfeed.ops.process import result_of
from graphfeed.storage.features import FetchAhead


class FetchBeforeSteps(Datapipe, one_to_one=True, inserted=True, seeded=False):
    """Fetches the rows of the next `staleness` mini-batches in a thread, with the values that its input yields.

    Fetching begins when the caller requests the mini-batch `staleness` before, and so has made the steps that the rows
    depend on.
    """

    datapipe: FeatureFetcher
    staleness: int
    timeout_seconds: float = field(default=600.0, repr=False)

    def __iter__(self) -> Iterator[Any]:
        run, fetcher = current_run(self), self.datapipe
        tables = {fetcher.feature_store[key] for key in fetcher.trained_keys}
        thread, source = ThreadExecutor(1, "graphfeed-trained"), with_failure(fetcher.datapipe)
        waiting: deque[tuple[FetchAhead, Future[Any]]] = deque()
        # The store may have another table since the plan was made.
        most = min(self.staleness, stale_by(fetcher))

        def begin(minibatch: Any) -> tuple[FetchAhead, Future[Any]]:
            key = getattr(minibatch, "key", None)
            ahead = FetchAhead(object() if key is None else key, tables, len(waiting))

            def fetch(minibatch: Any) -> Any:
                if isinstance(minibatch, Failure):  # of the source, raised instead of its mini-batch
                    raise minibatch.error
                return apply_stages([fetcher], minibatch, run.observer, lambda own: fetcher.fetched(own, ahead))

            return ahead, thread.submit(fetch, minibatch)

        try:
            while True:
                while len(waiting) <= most and (minibatch := next(source, END)) is not END:
                    waiting.append(begin(minibatch))
                if not waiting:
                    return
                ahead, future = waiting.popleft()
                fetched = run.wait(self, "reader", result_of, future, self.timeout_seconds)
                ahead.arrive()
                yield fetched
        finally:
            source.close()
            if run.is_here:
                thread.shutdown(cancel_futures=True)

    def __len__(self) -> int:
        return length(self.datapipe)
