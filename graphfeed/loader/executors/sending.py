"""Checks which stages can be pickled for worker processes, without pickling their graphs and features."""

import io
import pickle
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import torch

from graphfeed.datapipes import Datapipe
from graphfeed.loader.executors.worker_task import ByReference
from graphfeed.storage.memory import Shareable

LIMIT_BYTES = 1 << 16
"""Stages that are larger are not sent, because each task would contain them."""


class LeavesOut:
    """Makes a pickler skip the stages before `stage`, and objects that are sent as handles."""

    stage: Datapipe

    def persistent_id(self, value: Any) -> str | None:
        if isinstance(value, Shareable) or (isinstance(value, Datapipe) and value is not self.stage):
            return "left out"
        on_device = isinstance(value, torch.Tensor) and not value.is_cpu
        # Each task would contain a copy.
        if on_device or (isinstance(value, (torch.Tensor, np.ndarray)) and value.nbytes > LIMIT_BYTES):
            raise pickle.PicklingError("an array is too large, or on a device")
        return None


def picklers() -> Iterator[type]:
    # In the order in which pack_work() tries them.
    yield ByReference
    try:
        yield import_module("cloudpickle").Pickler
    except ImportError:
        return


def can_be_sent(stage: Datapipe) -> bool:
    """Return whether a stage, without the stages before it, pickles to at most `LIMIT_BYTES`. Copies no arrays."""
    return any(fits(stage, pickler) for pickler in picklers())


def fits(stage: Datapipe, pickler: type) -> bool:
    probe: Any = type("Probe", (LeavesOut, pickler), {"stage": stage})
    file = io.BytesIO()
    try:
        probe(file, protocol=5).dump(stage)
    except Exception:
        return False
    return file.tell() <= LIMIT_BYTES
