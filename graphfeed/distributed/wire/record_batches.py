"""Values with tensors as Arrow's record batches, for Arrow Flight: a tree for JSON, and its tensors; never pickled."""

import json
from collections.abc import Callable
from itertools import accumulate, groupby
from typing import Any, TypeAlias

import numpy as np
import torch

from graphfeed.datapipes import MiniBatch
from graphfeed.ops import Key
from graphfeed.ops.arguments import brief
from graphfeed.ops.memory import ALIGNMENT, NUMPY_DTYPES, POOL, Bytes, align
from graphfeed.ops.process import import_optional, install_hint
from graphfeed.storage import CSCFormatBase, SampledSubgraph
from graphfeed.storage.memory import TensorSpec, encode_tensors, from_bytes, read_specs

Tree: TypeAlias = Any
"""None, a bool, a number, a text, or a list that begins with the type of what follows."""

OBJECTS = {cls.__name__: cls for cls in (MiniBatch, SampledSubgraph, CSCFormatBase)}
"""The classes that are sent, attribute by attribute."""
SCALARS = frozenset((type(None), bool, int, float, str))
Path: TypeAlias = "tuple[Path, object] | None"
"""The name of a value, behind the path of what it is in; a text, only where one is needed."""

FORMAT = 3
"""The format of requests and record batches."""
OTHER_FORMAT = (
    "the other side has mini-batches in format {there}, and this one in format {here}; install the same release of "
    "graphfeed on both"
)

LARGEST_HEADER = 1 << 24
"""How many bytes all but the tensors may take; the objects that it would become may take gigabytes."""
EMPTY_ROW = bytes(16)
"""The one row of the column: Arrow's view of no bytes."""

SMALL_BYTES, LARGE_BYTES = 1 << 15, 1 << 20
"""Received tensors below the first size share a block of memory; so do those from there to the second, and larger ones
have their own."""


def pack_value(value: Any) -> tuple[Tree, dict[str, torch.Tensor]]:
    """Return a mini-batch as a tree for JSON, and its tensors by their numbers in it."""
    tensors: dict[str, torch.Tensor] = {}
    return pack(value, (None, "minibatch"), tensors, {}), tensors


def pack(value: Any, path: Path, tensors: dict[str, torch.Tensor], names: dict[int, str]) -> Tree:
    """Return the tree of a value, and add its tensors to those by name; `names` has the names by a tensor's id."""
    cls = type(value)
    # Exact types, as a subclass would come back as its base.
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
        keys = [pack(key, (path, "key"), tensors, names) for key in value]
        parts = [pack(part, (path, key), tensors, names) for key, part in value.items()]
        return ["dict", *zip(keys, parts, strict=True)]
    if OBJECTS.get(cls.__name__) is cls:
        return [cls.__name__, *[(key, pack(part, (path, key), tensors, names)) for key, part in vars(value).items()]]
    if cls is list or cls is tuple:
        return [cls.__name__, *[pack(part, (path, key), tensors, names) for key, part in enumerate(value)]]
    if cls is Key:
        return ["Key", value.seed, value.epoch, value.index]
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.insert(0, str(step))
    raise TypeError(
        f"{'.'.join(steps)} is a {cls.__name__}, which a sampling server can't send: mini-batches may hold "
        "dense tensors without gradients, dicts, lists, tuples, texts, numbers and None; let the stage that adds it "
        "run behind the cut, by runs_in = graphfeed.Placement.MAIN"
    )


def unpack_value(tree: Tree, tensors: dict[str, torch.Tensor]) -> Any:
    try:
        return unpack(tree, tensors)
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"what came is no mini-batch: {type(error).__name__}: {error}") from error


def unpack(tree: Tree, tensors: dict[str, torch.Tensor]) -> Any:
    """Return the value of a tree."""
    if not isinstance(tree, list):
        return tree
    word, *parts = tree
    if word in OBJECTS:
        # Nothing is executed, no constructor either.
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
"""How to make what is not an object."""


def import_arrow(module: str = "pyarrow") -> Any:
    """Return a module of pyarrow's."""
    return import_optional(module, "a sampling server", install_hint("serve"))


def to_batch(kind: str, value: Any) -> Any:
    """Return a value, and its kind in a word, as a record batch, which is sent straight from the tensors' memory."""
    # It has one column, whose buffers are a header and the tensors, small ones first; a column for each tensor would
    # take both sides several times as long. Each buffer takes up whole cache lines of what is sent, so that a reader
    # copies many at once. The one row is empty: a record batch without rows is not sent.
    arrow = import_arrow()
    tree, tensors = pack_value(value)
    in_order = dict(sorted(tensors.items(), key=lambda item: size_class(item[1].nbytes)))
    header, parts = encode_tensors(in_order, [FORMAT, kind, tree])
    header = header.ljust(align(len(header)))
    if len(header) > LARGEST_HEADER:
        raise ValueError(
            f"all but the tensors of a mini-batch may take {LARGEST_HEADER} bytes as JSON, but takes "
            f"{len(header)}; make tensors of its lists"
        )
    buffers = [None, *map(arrow.py_buffer, (EMPTY_ROW, header))]
    for part in parts:
        buffers.append(arrow.py_buffer(part))
        # Arrow itself goes on at the next multiple of 8 bytes.
        if gap := -part.size & (ALIGNMENT - 8):
            buffers.append(arrow.py_buffer(bytes(gap)))
    column = arrow.Array.from_buffers(arrow.binary_view(), 1, buffers)
    return arrow.RecordBatch.from_arrays([column], names=["minibatch"])


def size_class(size: int) -> int:
    """Return which received tensors one of so many bytes shares a block of memory with: 0 or 1, or 2 for none."""
    return (size >= SMALL_BYTES) + (size >= LARGE_BYTES)


def from_batch(batch: Any) -> tuple[Any, Any]:
    """Return the kind and the value of a record batch, whose tensors are this process's own."""
    # Arrow's memory can't be written to, and its arrays begin at any byte; so they are copied, once, into the pool's.
    if batch is not None:
        check_schema(batch.schema)
    try:
        header, memory = open_body(batch)
        (version, kind, tree), rows = json.loads(header)
        if version == FORMAT:
            specs = read_specs(rows)
            sizes = [spec.nbytes for spec in specs]
            if sum(map(align, sizes)) != memory.size:
                raise ValueError("its tensors have other sizes than it says")
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"what came is no message of graphfeed's: {str(error)[:200]}") from error
    if version != FORMAT:
        raise ValueError(OTHER_FORMAT.format(there=brief(version), here=FORMAT))
    return kind, unpack_value(tree, copy_tensors(specs, sizes, memory))


def open_body(batch: Any) -> tuple[bytes, Bytes]:
    """Return the header of a record batch, and the memory with its tensors, where it lies."""
    buffers = [] if batch is None else batch.column(0).buffers()[2:]
    if not buffers:
        raise ValueError("it has no data")
    header, body = buffers[0], buffers[0].parent
    if body is None:
        raise ValueError("its buffers lie apart, as if it were compressed")
    if header.size > LARGEST_HEADER:
        raise ValueError(f"its header has {header.size} bytes, more than {LARGEST_HEADER}")
    # No offset or size is taken from the message: what is returned lies within what came.
    memory = np.frombuffer(body, np.uint8) if body.size else np.empty(0, np.uint8)
    return header.to_pybytes(), memory[header.address + header.size - body.address :]


def check_schema(schema: Any) -> None:
    """Refuse what has other columns than this format, such as dictionaries, of which any number may come."""
    if [str(column) for column in schema.types[:2]] != ["binary_view"]:
        raise ValueError(f"what came is no message of graphfeed's: its columns are {brief(schema.names)}")


def copy_tensors(specs: list[TensorSpec], sizes: list[int], memory: Bytes) -> dict[str, torch.Tensor]:
    """Return tensors that begin at multiples of a cache line in pooled memory, copied from what came."""
    tensors: dict[str, torch.Tensor] = {}
    start = 0
    for number, alike in groupby(zip(specs, sizes, strict=True), lambda pair: size_class(pair[1])):
        # A block for each would take longer than the copy. So a tensor that is kept keeps at most those of its
        # mini-batch that are about as large: kept labels of some kB do not keep the features.
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
    # The copy begins at a multiple of a cache line.
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    copy = memory[start : start + data.size]
    copy[:] = data
    return copy
