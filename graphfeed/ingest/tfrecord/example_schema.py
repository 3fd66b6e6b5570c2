"""The features to read from records: given by the caller, or inferred from the first record."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from types import NoneType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from graphfeed.ops.arguments import brief
from graphfeed.ops.records import MOST_RECORD_BYTES, PLACES, ExampleLayout

KINDS = {"int64": "int64", "float32": "float", "float": "float", "string": "bytes", "bytes": "bytes", "str": "bytes"}
"""Kind of list for the name of a dtype."""
LIST_KINDS = {1: "bytes", 2: "float", 3: "int64"}
WIDTHS = {"int64": 8, "float": 4}


@dataclass(frozen=True)
class FixedLenFeature:
    """A feature with the same number of values in each record. TensorFlow's class of this name is accepted, too.

    Example:
        >>> FixedLenFeature(shape=[4], dtype=torch.float32)
        FixedLenFeature(shape=[4], dtype=torch.float32, default_value=None)
    """

    shape: Any
    """Shape of the values of a record: [] for one value."""
    dtype: Any
    """int64, float32, or "string" for bytes: a name, a torch or NumPy dtype, or TensorFlow's."""
    default_value: Any = None
    """Value for records without the feature; None makes them an error."""


@dataclass(frozen=True)
class ExampleColumn:
    """A feature to read."""

    kind: str
    shape: tuple[int, ...]
    """Shape of the values of a record."""
    width: int | None
    """Bytes per value; None for bytes before the first record was seen."""
    default: torch.Tensor | None = field(default=None, compare=False)

    @property
    def count(self) -> int:
        return prod(self.shape)

    @property
    def row_shape(self) -> tuple[int, ...]:
        # Bytes have their length as last dimension; for the places of strings, it is offset and size.
        last = {"bytes": (self.width or 0,), PLACES: (2,)}.get(self.kind, ())
        return (*self.shape, *last)


class ExampleSchema:
    """The features to read. Anything that the caller leaves open is inferred from the first record."""

    def __init__(self, features: Iterable[str] | Mapping[str, Any] | None) -> None:
        if isinstance(features, (str, bytes)) or not isinstance(features, (Iterable, NoneType)):
            raise TypeError(f"features must be a list of names, or a dict of specs, but is {brief(features)}")
        self.names = None if features is None else list(features)  # None: all features of the first record
        if not all(isinstance(name, str) for name in self.names or []):
            raise TypeError(f"features must have names that are strings, but has {brief(self.names)}")
        specs = features if isinstance(features, Mapping) else {}
        self.given = {name: read_example_spec(name, spec) for name, spec in specs.items()}
        self.columns: dict[str, ExampleColumn] | None = None

    @cached_property
    def layout(self) -> ExampleLayout:
        columns = self.columns
        assert columns is not None
        return ExampleLayout(
            list(columns),
            [column.kind for column in columns.values()],
            [column.count for column in columns.values()],
            [column.width or 0 for column in columns.values()],
        )

    @property
    def defaults(self) -> dict[str, torch.Tensor]:
        return {name: column.default for name, column in (self.columns or {}).items() if column.default is not None}

    def infer_from(self, record: bytes) -> None:
        """Infer everything that is left open from a record."""
        found = describe_example(record, self.names)
        names = list(found) if self.names is None else self.names
        self.columns = {name: infer_column(name, self.given.get(name), found.get(name)) for name in names}

    def add_texts(self, names: Iterable[str]) -> None:
        """Add features of one string each, of which only the places are read."""
        assert self.columns is not None
        self.columns |= dict.fromkeys(names, ExampleColumn(PLACES, (), 16))

    def infer_without_records(self) -> None:
        unknown = [name for name in self.names or [] if name not in self.given]
        if unknown:
            raise ValueError(
                f"the files have no records, so the type of {unknown[0]!r} is unknown; give features as a dict of "
                "FixedLenFeature"
            )
        self.columns = dict(self.given)


def read_example_spec(name: str, spec: Any) -> ExampleColumn:
    """Return the column for a spec."""
    shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
    if shape is None or dtype is None:
        raise TypeError(
            f"features[{name!r}] must be a FixedLenFeature, but is {brief(spec)}; features of varying length can't be "
            "read into a tensor: pad them to one length where they are written, or leave them out"
        )
    text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype).removeprefix("torch.")
    if text not in KINDS:
        raise ValueError(f"features[{name!r}].dtype must be int64, float32 or 'string', but is {brief(dtype)}")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise ValueError(f"features[{name!r}].shape must be a list of integers, but is {brief(shape)}")
    if max(*sizes, prod(sizes), 0) > MOST_RECORD_BYTES:
        raise ValueError(
            f"features[{name!r}].shape must be that of the values of a record, which has at most {MOST_RECORD_BYTES} "
            f"bytes, but is {brief(shape)}"
        )
    kind = KINDS[text]
    default = getattr(spec, "default_value", None)
    if default is None:
        return ExampleColumn(kind, sizes, WIDTHS.get(kind))
    values = default_tensor(name, kind, sizes, default)
    return ExampleColumn(kind, sizes, WIDTHS.get(kind, values.shape[-1] if values.dim() else 0), values)


def default_tensor(name: str, kind: str, shape: tuple[int, ...], value: Any) -> torch.Tensor:
    """Return the default values of one row."""
    if kind == "bytes":
        text = value.encode() if isinstance(value, str) else value
        if not isinstance(text, bytes):
            raise ValueError(f"features[{name!r}].default_value must be bytes, but is {brief(value)}")
        row = torch.from_numpy(np.frombuffer(text, dtype=np.uint8).copy())
        return row.expand(*shape, len(text)).contiguous()
    wrong = f"features[{name!r}].default_value must be one number, or have shape {shape}, but is {brief(value)}"
    try:
        given = torch.as_tensor(value, device="cpu")
        values = given.to(torch.int64 if kind == "int64" else torch.float32).expand(shape).contiguous()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(wrong) from error
    if given.numel() != 1 and given.shape != shape:
        raise ValueError(wrong)
    if kind == "int64" and given.numel() and (given.is_floating_point() or given.is_complex()):
        raise ValueError(f"features[{name!r}].default_value must be an integer for dtype int64, but is {brief(value)}")
    return values


def infer_column(name: str, given: ExampleColumn | None, found: "tuple[str, int, int] | None") -> ExampleColumn:
    """Return a column, with anything that its spec leaves open from the first record."""
    if found is None:
        if given is None or (given.width is None and given.default is None):
            raise ValueError(f"feature {name!r} is missing")
        return given
    kind, count, width = found
    if given is None:
        return ExampleColumn(kind, () if count == 1 else (count,), width)
    if given.width is None and given.kind == kind:
        return ExampleColumn(kind, given.shape, width)
    return given  # the kernel compares each record with it, including this one


class MalformedError(ValueError):
    """Bytes that are not a valid message."""


def describe_example(record: bytes, names: Container[str] | None = None) -> dict[str, tuple[str, int, int]]:
    """Return the features of a `tf.train.Example`: the kind of list, the number of values, and the bytes per value."""
    found: dict[str, tuple[str, int, int]] = {}
    for name, kinds, values in example_features(record, names):
        if name in found:
            raise ValueError(f"feature {name!r} occurs twice")
        if len(kinds) != 1:
            raise ValueError(
                f"feature {name!r} has {'several lists' if kinds else 'no list'}, so its dtype is unknown; give "
                "features that leave it out"
            )
        kind = kinds.pop()
        found[name] = (kind, *describe_list(name, kind, values))
    return found


def example_features(record: bytes, names: Container[str] | None = None) -> Iterator[tuple[str, set[str], list[bytes]]]:
    """Yield the features of a `tf.train.Example`: the name, the kinds of the lists, and the contents of the values."""
    for entry in parts(record, 1):
        for pair in parts(entry, 1):
            # If a field occurs several times, the last one counts.
            name = b"".join(list(parts(pair, 1))[-1:]).decode(errors="surrogateescape")
            if names is None or name in names:
                feature = b"".join(list(parts(pair, 2))[-1:])
                lists = [(number, content) for number, content in fields(feature) if number in LIST_KINDS]
                # Numbers may be packed, with several in one content.
                values = [value for _, content in lists for value in parts(content, 1)]
                yield name, {LIST_KINDS[number] for number, _ in lists}, values


def count_features(data: NDArray[np.uint8], at: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of features in the `tf.train.Example` of each record, or -1 for records with other fields."""
    counts = np.zeros_like(at)
    usual, at = skip_head(data, at, ends, whole=True)
    while (unread := usual & (at < ends)).any():
        is_field, after = skip_head(data, at, ends, whole=False)
        usual &= is_field | ~unread
        at, counts = np.where(unread, after, at), counts + unread
    return np.where(usual & (at == ends), counts, -1)


def skip_head(
    data: NDArray[np.uint8], at: NDArray[np.int64], ends: NDArray[np.int64], whole: bool
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return whether a message has field 1 at the given positions, and where it begins (`whole`) or ends."""
    last = len(data) - 1
    usual, size, more = data[np.minimum(at, last)] == 1 << 3 | 2, np.zeros_like(at), np.ones_like(at, dtype=bool)
    for place in range(5):
        at = at + more
        byte = data[np.minimum(at, last)]
        size += np.where(more, (byte & 0x7F).astype(np.int64) << 7 * place, 0)
        more &= byte >= 0x80
    after = at + 1 + size
    return usual & ~more & (after == ends if whole else after <= ends), at + 1 if whole else after


def describe_list(name: str, kind: str, values: list[bytes]) -> tuple[int, int]:
    """Return the number of values in a list, and the bytes per value."""
    if kind == "bytes":
        widths = {len(value) for value in values}
        if len(widths) > 1:
            raise ValueError(
                f"feature {name!r} has strings of {min(widths)} to {max(widths)} bytes, which don't fit a tensor; give "
                "features that leave it out"
            )
        return len(values), widths.pop() if widths else 0
    content = b"".join(values)
    if kind == "float":
        return len(content) // 4, 4
    # Only the last byte of an integer lacks the continuation bit.
    return int(np.count_nonzero(np.frombuffer(content, dtype=np.uint8) < 0x80)), 8


def parts(message: bytes, wanted: int) -> Iterator[bytes]:
    return (content for number, content in fields(message) if number == wanted)


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each field of a message."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        # Fixed-width numbers have 8 or 4 bytes, a varint ends by itself, and the length of any other content precedes
        # it.
        size = {1: 8, 5: 4}.get(tag & 7)
        start = at
        if tag & 7 == 0:
            _, at = varint(message, at)
            size = at - start
        elif tag & 7 == 2:
            size, start = varint(message, at)
        if size is None or tag < 8 or size > len(message) - start:
            raise MalformedError("the content is not a tf.train.Example")
        at = start + size
        yield tag >> 3, message[start:at]


def varint(message: bytes, at: int) -> tuple[int, int]:
    # Seven bits per byte, lowest first. The eighth is the continuation bit; 64 bits take at most ten bytes.
    value = 0
    for place, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise MalformedError("the content is not a tf.train.Example")
