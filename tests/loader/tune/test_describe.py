"""What `explain()` says of what was measured."""

from dataclasses import replace
from typing import Any

import graphfeed as gf
from graphfeed.loader.tune import Choice, Limits, Trial, describe_tuning
from tests import pipelines


def test_it_says_what_was_chosen_measured_and_refused() -> None:
    loader = gf.DataLoader(pipelines.homogeneous(), num_workers="auto")
    tuning: Any = loader._tuning
    assert describe_tuning(tuning)[0].endswith("nothing was measured yet")
    inline, two = Choice("thread", 0, 2), Choice("thread", 2, 2)
    tuning.limits = Limits(2, 3e6)
    tuning.tried = [Trial(inline, 10.0, 0.9, 1.0, 9.0, 1.0, 0.0, 1e6), Trial(two, 20.0, 0.8, 1.0, 9.0, 1.0, 0.0, 2e6)]
    tuning.best = two
    assert "still measuring" in describe_tuning(tuning)[0]
    tuning.settled = "nothing next to it is faster"
    tuning.refused = {Choice("thread", 2, 4): 4e6}
    tuning.limits = replace(tuning.limits, no_processes="not here")
    assert describe_tuning(tuning) == [
        "workers: num_workers=\"auto\" chose num_workers=2, worker='thread', prefetch_factor=2: nothing next to it is "
        "faster",
        "  per second  waits   memory",
        "        10.0   90 %   1.0 MB  num_workers=0",
        "        20.0   80 %   2.0 MB  num_workers=2, worker='thread', prefetch_factor=2",
        "  refused: num_workers=2, worker='thread', prefetch_factor=4 would take 4.0 MB, more than the 3.0 MB of "
        "memory_limit",
        "  refused: worker='process': not here",
    ]
    assert loader.explain().endswith("\n".join(describe_tuning(tuning)))
