"""Messages between ranks: a dict for JSON and some tensors, in one piece of memory. Nothing is pickled."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graphfeed.ops.memory import Bytes, buffers
from graphfeed.storage.memory import Frame, decode_tensors, encode_tensors, read_frame

Tensors = Mapping[str, torch.Tensor]


@dataclass
class Traffic:
    """Counts of what a rank has sent so far."""

    exchanges: int = 0
    """How often it asked other ranks something; all that is asked at the same time counts once."""
    bytes_sent: int = 0
    """Its questions, and its answers to others."""
    rows_needed: int = 0
    """The rows of its nodes that ranks needed for joint mini-batches (`cooperative=True`): one per rank and node."""
    rows_read: int = 0
    """Those that it read, each once for all ranks; the rest was saved."""


def pack(head: Mapping[str, Any], tensors: Tensors) -> Bytes:
    """Return a message in memory of its own: what is written to the tensors from then on doesn't reach the receiver.

    Example:
        >>> [(head, tensors)] = unpack(pack({"id": 3}, {"ids": torch.arange(2)}))
        >>> head, tensors
        ({'id': 3}, {'ids': tensor([0, 1])})
    """
    frame = Frame(*encode_tensors(tensors, head))
    memory = buffers.empty(frame.size, torch.uint8).numpy()
    frame.write(memory)
    return memory


def concatenate(messages: Sequence[Bytes]) -> Bytes:
    """Return messages one after the other, without a copy where there is one."""
    if len(messages) == 1:
        return messages[0]
    memory = buffers.empty(sum(message.size for message in messages), torch.uint8).numpy()
    return np.concatenate(messages, out=memory) if messages else memory


def unpack(memory: Bytes) -> Iterator[tuple[dict[str, Any], dict[str, torch.Tensor]]]:
    """Yield the messages that lie one after the other in some memory; their tensors view it."""
    while memory.size:
        header, parts, size = read_frame(memory)
        yield decode_tensors(header, parts)
        memory = memory[size:]
