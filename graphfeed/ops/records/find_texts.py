"""Texts that lie one behind the other in memory: where each of some others is among them."""

from types import ModuleType

import torch

from graphfeed.ops.arguments import check_vector
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers


def index_texts(values: torch.Tensor, offsets: torch.Tensor, room: int = 0) -> torch.Tensor:
    """Return a hash table of texts for `find_texts`, in which each has its first index.

    Args:
        values: uint8, shape (bytes,): the bytes of all texts, one behind the other.
        offsets: int64, shape (texts + 1,): where each text begins and, at last, where all end.
        room: How many texts more the table must have room for.

    Returns:
        int64: in each slot, the place of a text in the lower 40 bits and bits of its hash above; -1 in those that are
        free. At least two slots per text.

    Raises:
        TypeError: Tensors of other dtypes.
        ValueError: Offsets that are empty, fall, or lie outside of the bytes.

    Example:
        >>> values, offsets = torch.tensor(list(b"annben"), dtype=torch.uint8), torch.tensor([0, 3, 6])
        >>> table = index_texts(values, offsets)
        >>> asked, of_asked = torch.tensor(list(b"bencem"), dtype=torch.uint8), torch.tensor([0, 3, 6])
        >>> find_texts(values, offsets, table, asked, of_asked)
        tensor([ 1, -1])
    """
    check_texts("values", values, "offsets", offsets)
    count = len(offsets) - 1 + room
    module = kernels("records.find_texts", values, offsets=offsets)
    table = torch.full((1 << max((2 * count - 1).bit_length(), 1),), -1, dtype=torch.int64)
    module.index_texts(values.contiguous(), offsets.contiguous(), table, block_scratch(module))
    return table


def find_texts(
    values: torch.Tensor,
    offsets: torch.Tensor,
    table: torch.Tensor,
    asked: torch.Tensor,
    asked_offsets: torch.Tensor,
) -> torch.Tensor:
    """Return the index of each text among others, -1 where there is none.

    Args:
        values: uint8: the bytes of the texts that are searched.
        offsets: int64: where each of them begins.
        table: What `index_texts` returned for them.
        asked: uint8: the bytes of the texts that are looked up.
        asked_offsets: int64, shape (asked + 1,): where each of those begins.

    Returns:
        int64, shape (asked,).

    Raises:
        TypeError: Tensors of other dtypes.
        ValueError: Offsets of the texts that are looked up are empty, fall, or lie outside of the bytes; or the table
            has a number of slots that is no power of two. What else is wrong finds nothing: the searched texts are not
            checked again, because they are many.
    """
    for name, tensor in (("values", values), ("asked", asked)):
        check_vector(name, tensor, (torch.uint8,))
    check_vector("offsets", offsets, (torch.int64,))
    check_vector("table", table, (torch.int64,))
    check_texts("asked", asked, "asked_offsets", asked_offsets)
    if len(table).bit_count() != 1:
        raise ValueError(f"table must be what index_texts() returned, but has {len(table)} slots")
    module = kernels("records.find_texts", values, offsets=offsets, table=table, asked=asked)
    out = buffers.empty(len(asked_offsets) - 1, torch.int64)
    arrays = (values, offsets, table, asked, asked_offsets)
    module.find_texts(*(array.contiguous() for array in arrays), out, block_scratch(module))
    return out


def check_texts(name: str, values: torch.Tensor, of_offsets: str, offsets: torch.Tensor) -> None:
    check_vector(name, values, (torch.uint8,))
    check_vector(of_offsets, offsets, (torch.int64,))
    if len(offsets) == 0:
        raise ValueError(f"{of_offsets} must have one value more than there are texts, but has none")
    if int(offsets[0]) < 0 or int(offsets[-1]) > len(values) or bool((offsets[1:] < offsets[:-1]).any()):
        raise ValueError(f"{of_offsets} must rise from 0 or more to at most the {len(values)} bytes of {name}")


def block_scratch(module: ModuleType) -> torch.Tensor:
    # What kernels note of a block of texts.
    return torch.empty(2 * module.BLOCK, dtype=torch.int64)
