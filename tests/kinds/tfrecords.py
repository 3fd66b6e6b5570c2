"""TFRecord files, written in plain Python by the description of the format."""

import gzip
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch

Values = Sequence[int] | Sequence[float] | Sequence[bytes]
Example = Mapping[str, Values]


def as_tensor(data: bytes) -> torch.Tensor:
    """Return bytes in the form that the operations on records expect."""
    return torch.tensor(list(data), dtype=torch.uint8)


def crc32c(data: bytes) -> int:
    """Return the CRC32C, computed bit by bit."""
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum ^= byte
        for _ in range(8):
            checksum = (checksum >> 1) ^ (0x82F63B78 if checksum & 1 else 0)
    return checksum ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """Return the checksum as it is stored."""
    checksum = crc32c(data)
    return struct.pack("<I", (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value: int) -> bytes:
    """Return an integer in protobuf's encoding."""
    value &= (1 << 64) - 1
    text = bytearray()
    while value >= 0x80:
        text.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*text, value])


def field(number: int, content: bytes) -> bytes:
    """Return a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(values: Values, packed: bool = True) -> bytes:
    """Return a `tf.train.Feature` of a list, which must not be empty."""
    if isinstance(values[0], bytes):
        return field(1, b"".join(field(1, value) for value in values))  # type: ignore[arg-type]
    if isinstance(values[0], float):
        parts = [struct.pack("<f", value) for value in values]
        return field(2, field(1, b"".join(parts)) if packed else b"".join(b"\x0d" + part for part in parts))
    parts = [varint(value) for value in values]  # type: ignore[arg-type]
    return field(3, field(1, b"".join(parts)) if packed else b"".join(b"\x08" + part for part in parts))


def entry(name: str, content: bytes) -> bytes:
    """Return a feature with its name."""
    return field(1, field(1, name.encode()) + field(2, content))


def example(features: Example, packed: bool = True) -> bytes:
    """Return a `tf.train.Example`."""
    return field(1, b"".join(entry(name, feature(values, packed)) for name, values in features.items()))


def record(content: bytes) -> bytes:
    """Return a record with its length and checksums."""
    length = struct.pack("<Q", len(content))
    return length + masked(length) + content + masked(content)


def write(path: Path, contents: Iterable[bytes | Example]) -> Path:
    """Write a file of records, compressed if its name ends with .gz."""
    data = b"".join(record(one if isinstance(one, bytes) else example(one)) for one in contents)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
