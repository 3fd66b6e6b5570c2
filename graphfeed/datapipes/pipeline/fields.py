"""Check what a stage reads from."""

from typing import Any

from graphfeed.ops.arguments import brief


def check_source(stage: Any) -> None:
    """Raise a TypeError unless the stage reads from something that can be iterated."""
    if not hasattr(stage.datapipe, "__iter__"):
        raise TypeError(
            f"datapipe, the source of {type(stage).__name__}, must be a stage or an iterable of mini-batches, but is "
            f"{brief(stage.datapipe)}"
        )
