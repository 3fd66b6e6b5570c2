"""What `num_workers="auto"` means: measuring how many workers are best, and threads or processes, while they are used.

`propose` decides what to try next. It is a function of the trials so far and of the `Limits`, without clocks. `limits`
finds what this machine and this pipeline allow. A `Tuning` runs an epoch as a sequence of segments, each with one
`Choice`, and turns what a profile measured in a segment into a `Trial`. How a plan is run is not here, but in
`runner.py`, and what is measured in `profile/`.
"""

from graphfeed.loader.tune.choice import Choice, Limits, Trial
from graphfeed.loader.tune.describe import describe_tuning
from graphfeed.loader.tune.limits import find_limits, why_fixed
from graphfeed.loader.tune.propose import Proposal, best_of, propose
from graphfeed.loader.tune.tuning import Tuning

__all__ = [
    "Choice", "Limits", "Proposal", "Trial", "Tuning", "best_of", "describe_tuning",
    "find_limits", "propose", "why_fixed",
]  # fmt: skip
