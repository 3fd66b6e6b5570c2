"""Which stages can be sent to another process."""

import io
import pickle
import sys
from types import FunctionType
from typing import Any

import numpy as np
import torch

from graphfeed.datapipes.datapipe import Datapipe
from graphfeed.storage.memory.shared import Shareable

LIMIT_BYTES = 1 << 16
"""A stage that takes more is not sent, since it would travel with each mini-batch."""


class StagePickler(pickle.Pickler):
    """Pickles a stage without the stages before it, and without what is sent as a handle."""

    def __init__(self, stage: Datapipe, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.stage = stage

    def persistent_id(self, value: Any) -> str | None:
        """Return a name for what is left out; raise for what can't be sent, or not quickly."""
        if isinstance(value, Shareable) or (isinstance(value, Datapipe) and value is not self.stage):
            return "left out"
        if isinstance(value, (torch.Tensor, np.ndarray)) and (value.nbytes > LIMIT_BYTES or not is_on_cpu(value)):
            raise pickle.PicklingError("a large array would be copied")
        if isinstance(value, (type, FunctionType)) and value.__module__ == "__main__" and not main_can_be_imported():
            raise pickle.PicklingError("other processes can't import it")
        return None


def is_on_cpu(value: Any) -> bool:
    """Tell whether an array lies in CPU memory."""
    return not isinstance(value, torch.Tensor) or value.is_cpu


def main_can_be_imported() -> bool:
    """Tell whether worker processes can import this process's main module, which notebooks and `python -c` lack."""
    main = sys.modules["__main__"]
    return getattr(main, "__file__", None) is not None or getattr(main, "__spec__", None) is not None


def can_be_sent(stage: Datapipe) -> bool:
    """Tell whether a stage can be pickled, without the stages before it, in a few kilobytes.

    Graphs and features that are sent as handles stay where they are. Nothing is copied.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> source = ItemSampler(ItemSet(4, names="seeds"), batch_size=2)
        >>> can_be_sent(source.transform()), can_be_sent(source.transform(lambda minibatch: minibatch))
        (True, False)
    """
    file = io.BytesIO()
    try:
        StagePickler(stage, file).dump(stage)
    except Exception:
        return False
    return file.tell() <= LIMIT_BYTES
