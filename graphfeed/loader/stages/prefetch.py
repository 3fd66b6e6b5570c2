"""Run a part of a pipeline in a thread, ahead of its reader."""

import threading
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from graphfeed.datapipes import Datapipe, length
from graphfeed.loader.executors.thread_executor import ENDINGS, describe_work, join_or_abandon
from graphfeed.loader.run import RunContext, current_run
from graphfeed.loader.transport.thread_channel import Closed, Failure, ThreadChannel


def feed(cut: "Prefetch", run: RunContext, channel: ThreadChannel) -> None:
    """Put the mini-batches before a stage into a channel, until they end or fail, or the reader is gone."""
    try:
        for minibatch in run.drive(cut.datapipe):
            if not run.wait(cut, "maker", channel.put, minibatch):
                return
    except BaseException as error:
        channel.put(Failure(error))
    finally:
        channel.close()


class Prefetch(Datapipe):
    """Runs the stages before it in a thread of its own, some mini-batches ahead.

    The thread holds no reference to the iterator. So an abandoned iterator is collected, which ends the thread.
    """

    datapipe: Datapipe[Any]
    buffer_size: int = 2
    timeout_seconds: float = field(default=600.0, repr=False)

    one_to_one = True
    inserted = True

    def __iter__(self) -> Iterator[Any]:
        run, channel = current_run(self), ThreadChannel(self.buffer_size)
        ahead = run.nested()
        ahead.when_cancelled(channel.close)
        thread = threading.Thread(target=feed, args=(self, ahead, channel), name="graphfeed-prefetch", daemon=True)
        ENDINGS[thread] = ahead.cancel
        thread.start()
        try:
            while True:
                try:
                    item = run.wait(self, "reader", channel.get, self.timeout_seconds)
                except Closed:
                    return
                except TimeoutError as error:
                    raise TimeoutError(
                        f"the prefetch thread gave no mini-batch for {self.timeout_seconds:g} s "
                        f"({describe_work(thread)}); a stage hangs, or is slower than that: "
                        "give the DataLoader a larger timeout"
                    ) from error
                if isinstance(item, Failure):
                    raise item.error
                yield item
        finally:
            ahead.cancel()
            join_or_abandon([thread])

    def __len__(self) -> int:
        return length(self.datapipe)
