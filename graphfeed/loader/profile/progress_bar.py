"""A bar for an epoch, which says how much the loop waits."""

from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any

from graphfeed.loader.profile.epoch_record import timed
from graphfeed.ops.process import import_optional

SECONDS_BETWEEN_REDRAWS = 0.5


def with_progress(minibatches: Iterator[Any], epoch: int, begun: int, total: int | None) -> Iterator[Any]:
    """Yield mini-batches under a bar of tqdm's: their rate, the share of the time that the loop waits, the time left.

    Args:
        minibatches: What to yield.
        epoch: The number of the epoch.
        begun: How many mini-batches came before, in an epoch that is resumed.
        total: How many mini-batches the epoch has; None if nobody knows.
    """
    automatic = import_optional("tqdm.auto", "progress=True", "pip install tqdm").tqdm
    # tqdm's monitor is a thread that would stay until the end of the program.
    bar_class: Any = type("EpochBar", (automatic,), {"monitor_interval": 0})
    waited, start = 0, perf_counter_ns()
    with bar_class(
        desc=f"epoch {epoch}",
        initial=begun,
        total=total,
        unit="batch",
        dynamic_ncols=True,
        mininterval=SECONDS_BETWEEN_REDRAWS,
    ) as bar:
        for handover, minibatch in timed(minibatches):
            waited += handover.given - handover.asked
            bar.set_postfix_str(f"waits {100 * waited / (handover.given - start):.0f} %", refresh=False)
            bar.update()
            yield minibatch
