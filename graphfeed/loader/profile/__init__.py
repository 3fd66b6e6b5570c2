"""What an epoch spends its time on: where stages run, who waits for whom, and what to change.

A `Recorder` is an observer that writes down a span for each call of a stage; those of worker processes and servers
travel with the mini-batch. An `EpochRecord` adds what the loader sees. All else are functions of these records.
"""

from graphfeed.loader.profile.epoch_record import EpochRecord, Setting, StageRow, find_caches, timed
from graphfeed.loader.profile.profile import Profile
from graphfeed.loader.profile.recorder import FIRST_SERVER, Measured, Recorder, Span
from graphfeed.loader.profile.summary import Summary, summarise

__all__ = [
    "FIRST_SERVER", "EpochRecord", "Measured", "Profile", "Recorder", "Setting", "Span", "StageRow",
    "Summary", "find_caches", "summarise", "timed",
]  # fmt: skip
