"""Conversion of values with tensors to Arrow record batches and back, as JSON and raw tensors, without pickle."""

import json
from collections.abc import Callable
from itertools import accumulate, groupby
from typing import Any, TypeAlias

import numpy as np
import torch

from graphfeed.datapipes import MiniBatch, NeighborMatrix
from graphfeed.ops import Key
from graphfeed.ops.arguments import brief
from graphfeed.ops.memory import ALIGNMENT, NUMPY_DTYPES, POOL, Bytes, align
from graphfeed.ops.process import import_optional, install_hint
from graphfeed.storage import CSCFormatBase, SampledSubgraph
from graphfeed.storage.memory import TensorSpec, encode_tensors, from_bytes, read_specs

Tree: TypeAlias = Any
"""None, a bool, a number, a string, or a list that begins with a type name."""

OBJECTS = {cls.__name__: cls for cls in (MiniBatch, NeighborMatrix, SampledSubgraph, CSCFormatBase)}
"""The classes that can be sent, attribute by attribute."""
SCALARS = frozenset((type(None), bool, int, float, str))
Path: TypeAlias = "tuple[Path, object] | None"
"""A linked list of the names that lead to a value, joined only in error messages."""

FORMAT = 3
"""Version of the format of requests and record batches."""
OTHER_FORMAT = (
    "the other side uses mini-batch format {there}, and this side format {here}; install the same release of "
    "graphfeed on both"
)

LARGEST_HEADER = 1 << 24
"""Maximum size of the header, which is everything except the tensors: parsed, it may take gigabytes."""
EMPTY_ROW = bytes(16)
"""The single row of the column: an empty view in Arrow's format."""

SMALL_BYTES, LARGE_BYTES = 1 << 15, 1 << 20
"""Received tensors below the first size share a block of memory, as do those from the first to below the second size.
Larger ones have separate memory."""


def pack_value(value: Any) -> tuple[Tree, dict[str, torch.Tensor]]:
    """Return a mini-batch as a tree for JSON, and its tensors by their numbers in the tree."""
    tensors: dict[str, torch.Tensor] = {}
    return pack_tree(value, (None, "minibatch"), tensors, {}), tensors


def pack_tree(value: Any, path: Path, tensors: dict[str, torch.Tensor], names: dict[int, str]) -> Tree:
    """Return the tree of a value, and add its tensors to `tensors`; `names` has the names by the tensors' `id()`."""
    cls = type(value)
    # Exact types, because a subclass would be received as its base.
    if cls in SCALARS:
        return value
    if cls is torch.Tensor and value.layout is torch.strided and not (value.requires_grad or value.is_quantized):
        # A tensor that occurs twice is sent once.
        name = names.get(id(value))
        if name is None:
            name = names[id(value)] = str(len(tensors))
            tensors[name] = value
        return ["tensor", name]
    if cls is dict:
        keys = [pack_tree(key, (path, "key"), tensors, names) for key in value]
        parts = [pack_tree(part, (path, key), tensors, names) for key, part in value.items()]
        return ["dict", *zip(keys, parts, strict=True)]
    if OBJECTS.get(cls.__name__) is cls:
        return [
            cls.__name__,
            *[(key, pack_tree(part, (path, key), tensors, names)) for key, part in vars(value).items()],
        ]
    if cls is list or cls is tuple:
        return [cls.__name__, *[pack_tree(part, (path, key), tensors, names) for key, part in enumerate(value)]]
    if cls is Key:
        return ["Key", value.seed, value.epoch, value.index]
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.insert(0, str(step))
    raise TypeError(
        f"{'.'.join(steps)} is a {cls.__name__}, which a sampling server can't send: mini-batches may contain "
        "dense tensors without gradients, dicts, lists, tuples, strings, numbers and None; run the stage that adds it "
        "after the cut, by runs_in = graphfeed.Placement.MAIN"
    )


def unpack_value(tree: Tree, tensors: dict[str, torch.Tensor]) -> Any:
    try:
        return unpack(tree, tensors)
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"the message is not a valid mini-batch: {type(error).__name__}: {error}") from error


def unpack(tree: Tree, tensors: dict[str, torch.Tensor]) -> Any:
    """Return the value of a tree."""
    if not isinstance(tree, list):
        return tree
    word, *parts = tree
    if word in OBJECTS:
        # No code is executed, not even a constructor.
        made = OBJECTS[word].__new__(OBJECTS[word])
        vars(made).update((str(name), unpack(part, tensors)) for name, part in parts)
        return made
    return UNPACK[word](parts, tensors)


UNPACK: dict[str, Callable[[list[Any], dict[str, torch.Tensor]], Any]] = {
    "Key": lambda parts, _: Key(*map(int, parts)),
    "dict": lambda parts, tensors: {unpack(name, tensors): unpack(part, tensors) for name, part in parts},
    "list": lambda parts, tensors: [unpack(part, tensors) for part in parts],
    "tensor": lambda parts, tensors: tensors[parts[0]],
    "tuple": lambda parts, tensors: tuple(unpack(part, tensors) for part in parts),
}
"""Decoders of values other than objects."""


def import_arrow(module: str = "pyarrow") -> Any:
    """Return a module of pyarrow; raise an ImportError if it is not installed."""
    return import_optional(module, "a sampling server", install_hint("serve"))


def to_batch(kind: str, value: Any) -> Any:
    """Return a value, and its kind in a word, as a record batch that shares the memory of contiguous CPU tensors."""
    # It has one column, whose buffers are a header and the tensors, small ones first; one column per tensor would be
    # several times as slow on both sides. Each buffer is padded to whole cache lines, so that a reader can copy many
    # at once. The single row is empty: record batches without rows are not sent.
    arrow = import_arrow()
    tree, tensors = pack_value(value)
    in_order = dict(sorted(tensors.items(), key=lambda item: size_class(item[1].nbytes)))
    header, parts = encode_tensors(in_order, [FORMAT, kind, tree])
    header = header.ljust(align(len(header)))
    if len(header) > LARGEST_HEADER:
        raise ValueError(
            f"the JSON of a mini-batch without its tensors may take {LARGEST_HEADER} bytes, but takes "
            f"{len(header)}; convert its lists to tensors"
        )
    buffers = [None, *map(arrow.py_buffer, (EMPTY_ROW, header))]
    for part in parts:
        buffers.append(arrow.py_buffer(part))
        # Arrow itself pads only to the next multiple of 8 bytes.
        if gap := -part.size & (ALIGNMENT - 8):
            buffers.append(arrow.py_buffer(bytes(gap)))
    column = arrow.Array.from_buffers(arrow.binary_view(), 1, buffers)
    return arrow.RecordBatch.from_arrays([column], names=["minibatch"])


def size_class(size: int) -> int:
    """Return the size class of a received tensor: those of class 0 or 1 share a block of memory, class 2 does not."""
    return (size >= SMALL_BYTES) + (size >= LARGE_BYTES)


def from_batch(batch: Any) -> tuple[Any, Any]:
    """Return the kind and the value of a record batch, with its tensors copied to memory of this process."""
    # Arrow's memory is read-only and unaligned, so the tensors are copied once, to pooled memory.
    if batch is not None:
        check_schema(batch.schema)
    try:
        header, memory = open_body(batch)
        (version, kind, tree), rows = json.loads(header)
        if version == FORMAT:
            specs = read_specs(rows)
            sizes = [spec.nbytes for spec in specs]
            if sum(map(align, sizes)) != memory.size:
                raise ValueError("the sizes of its tensors are inconsistent")
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"this is not a message of graphfeed: {str(error)[:200]}") from error
    if version != FORMAT:
        raise ValueError(OTHER_FORMAT.format(there=brief(version), here=FORMAT))
    return kind, unpack_value(tree, copy_tensors(specs, sizes, memory))


def open_body(batch: Any) -> tuple[bytes, Bytes]:
    """Return the header of a record batch, and a view of the memory of its tensors."""
    buffers = [] if batch is None else batch.column(0).buffers()[2:]
    if not buffers:
        raise ValueError("it has no data")
    header, body = buffers[0], buffers[0].parent
    if body is None:
        raise ValueError("its buffers are not contiguous, as if it were compressed")
    if header.size > LARGEST_HEADER:
        raise ValueError(f"its header has {header.size} bytes, more than {LARGEST_HEADER}")
    # No offset or size is read from the message, so the result is within the received memory.
    memory = np.frombuffer(body, np.uint8) if body.size else np.empty(0, np.uint8)
    return header.to_pybytes(), memory[header.address + header.size - body.address :]


def check_schema(schema: Any) -> None:
    """Raise unless the columns are those of this format. Dictionary columns, for example, have no limit of size."""
    if [str(column) for column in schema.types[:2]] != ["binary_view"]:
        raise ValueError(f"this is not a message of graphfeed: its columns are {brief(schema.names)}")


def copy_tensors(specs: list[TensorSpec], sizes: list[int], memory: Bytes) -> dict[str, torch.Tensor]:
    """Copy received tensors to cache-aligned pooled memory."""
    tensors: dict[str, torch.Tensor] = {}
    start = 0
    for number, alike in groupby(zip(specs, sizes, strict=True), lambda pair: size_class(pair[1])):
        # A block for each tensor would take longer than copying. But a tensor that is kept alive keeps only tensors of
        # similar size alive: labels of some kB don't keep the features.
        for group in [list(alike)] if number < size_class(LARGE_BYTES) else [[pair] for pair in alike]:
            offsets = list(accumulate((align(size) for _, size in group), initial=0))
            block = copy_aligned(memory[start : start + offsets[-1]])
            for ((name, dtype, shape), size), offset in zip(group, offsets, strict=False):
                known = NUMPY_DTYPES.get(dtype)
                if known is not None and size:
                    tensors[name] = torch.from_numpy(np.ndarray(shape, known, block, offset))
                else:
                    tensors[name] = from_bytes(block[offset : offset + size], dtype, shape)
            start += offsets[-1]
    return tensors


def copy_aligned(data: Bytes) -> Bytes:
    memory: Bytes = POOL.empty(data.size + ALIGNMENT, np.uint8)
    # Align the copy to a cache line.
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    copy = memory[start : start + data.size]
    copy[:] = data
    return copy
