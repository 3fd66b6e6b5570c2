"""Profiling of epochs: the time of each stage, waits, and a change to try.

A `Recorder` is an observer that records a span for each call of a stage; worker processes and servers return theirs
with the mini-batch. An `EpochRecord` adds the loader's measurements. Everything else is computed from these records.
"""

from graphfeed.loader.profile.epoch_record import EpochRecord, LoaderConfig, StageRow, find_caches, timed
from graphfeed.loader.profile.profile import Profile
from graphfeed.loader.profile.recorder import FIRST_SERVER, Measured, Recorder, Span
from graphfeed.loader.profile.summary import Summary, summarise

__all__ = [
    "FIRST_SERVER", "EpochRecord", "LoaderConfig", "Measured", "Profile", "Recorder", "Span", "StageRow", "Summary",
    "find_caches", "summarise", "timed",
]  # fmt: skip
