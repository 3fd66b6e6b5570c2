"""Messages between ranks: a dict for JSON and some tensors, in one piece of memory. Nothing is pickled."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graphfeed.channels.codec import pack_tensors, unpack_tensors
from graphfeed.loader.transport.layout import lay_out, split
from graphfeed.ops import buffers
from graphfeed.ops.shared_memory import ALIGNMENT, Bytes, align

Tensors = Mapping[str, torch.Tensor]


@dataclass
class Traffic:
    """What a rank has sent so far."""

    exchanges: int = 0
    """How often it asked other ranks something; all that is asked at the same time counts once."""
    bytes_sent: int = 0
    """Its questions, and its answers to others."""
    rows_needed: int = 0
    """The rows of its nodes that ranks needed for joint mini-batches (`cooperative=True`): one per rank and node."""
    rows_read: int = 0
    """Those that it read, each once for all ranks; the rest was saved."""


def pack(head: Mapping[str, Any], tensors: Tensors) -> Bytes:
    """Return a message as bytes, whose number is a multiple of a cache line.

    Example:
        >>> [(head, tensors)] = unpack(pack({"id": 3}, {"ids": torch.arange(2)}))
        >>> head, tensors
        ({'id': 3}, {'ids': tensor([0, 1])})
    """
    table, parts = pack_tensors(tensors)
    header = json.dumps([head, table.decode()]).encode()
    layout = lay_out(len(header), [part.size for part in parts])
    size = ALIGNMENT + align(layout.size)
    memory = buffers.empty(size, torch.uint8).numpy()
    memory[:ALIGNMENT].view(np.int64)[:3] = size, len(header), len(parts)
    layout.write(memory[ALIGNMENT:], header, parts)
    return memory


def join(messages: Sequence[Bytes]) -> Bytes:
    """Return messages one after the other, without a copy where there is one."""
    if len(messages) == 1:
        return messages[0]
    memory = buffers.empty(sum(message.size for message in messages), torch.uint8).numpy()
    return np.concatenate(messages, out=memory) if messages else memory


def unpack(memory: Bytes) -> Iterator[tuple[dict[str, Any], dict[str, torch.Tensor]]]:
    """Yield the messages that lie one after the other in some memory; their tensors view it."""
    while memory.size:
        size, header_size, num_parts = memory[:ALIGNMENT].view(np.int64)[:3].tolist()
        text, parts = split(memory[ALIGNMENT:size], header_size, num_parts)
        head, table = json.loads(text)
        yield head, unpack_tensors(table.encode(), parts)
        memory = memory[size:]
