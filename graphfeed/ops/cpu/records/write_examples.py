"""The kernel that writes columns as TFRecords of `tf.train.Example` messages."""

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, UInt8s, copy_bytes, device_function, kernel
from graphfeed.ops.cpu.records.crc32c import masked_checksum
from graphfeed.ops.cpu.records.parse_examples import LIST_OF_BYTES, LIST_OF_INTEGERS
from graphfeed.ops.cpu.records.scan_records import HEAD, TAIL
from graphfeed.ops.cpu.records.wire import Layout


@device_function
def varint_size(value):
    size = 1
    rest = np.uint64(value) >> np.uint64(7)
    while rest:
        size += 1
        rest >>= np.uint64(7)
    return size


@device_function
def write_varint(out, at, value):
    """Write an integer; return where it ends."""
    rest = np.uint64(value)
    while rest >= np.uint64(0x80):
        out[at] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@device_function
def write_head(out, at, tag, size):
    """Write a field's tag and length; return where its content begins."""
    out[at] = tag
    return write_varint(out, at + 1, size)


@device_function
def field_size(size):
    """Return how many bytes a field takes with its tag and length, for short tags."""
    return 1 + varint_size(size) + size


@device_function
def write_number(out, at, value, size):
    # The lowest byte first.
    for place in range(size):
        out[at + place] = np.uint8((np.uint64(value) >> np.uint64(8 * place)) & np.uint64(255))


@device_function
def list_size(integers, kind, count, width, base):
    """Return how many bytes the message of a list takes."""
    if count == 0:
        return np.int64(0)
    if kind == LIST_OF_BYTES:
        return np.int64(count * field_size(width))
    size = count * width
    if kind == LIST_OF_INTEGERS:
        size = np.int64(0)
        for place in range(count):
            size += varint_size(integers[(base >> 3) + place])
    return np.int64(field_size(size))


@device_function
def write_list(data, integers, kind, count, width, base, size, out, at):
    """Write the message of a list; return where it ends."""
    if count == 0:
        return at
    if kind == LIST_OF_BYTES:
        for place in range(count):
            at = write_head(out, at, 10, width)
            copy_bytes(out, at, data, base + place * width, np.int64(width))
            at += width
        return at
    if kind == LIST_OF_INTEGERS:
        stop = at + size
        # The list's own head comes first; what follows it is as long as the rest.
        content = size - 2
        while field_size(content) > size:
            content -= 1
        at = write_head(out, at, 10, content)
        for place in range(count):
            at = write_varint(out, at, integers[(base >> 3) + place])
        return stop
    at = write_head(out, at, 10, count * width)
    copy_bytes(out, at, data, base, np.int64(count * width))
    return at + count * width


@kernel
def write_examples(data: UInt8s, integers: Int64s, rows: int, layout: Layout, sizes: Int64s, out: UInt8s) -> int:
    """Write each row as a record with its checksums; return where the last one ends."""
    # `integers` is the memory of `data`, the rows of each feature, one feature after the other.
    names, name_starts, kinds = layout.names, layout.name_starts, layout.kinds
    counts, widths, bases, features = layout.counts, layout.widths, layout.bases, layout.kinds.size
    at = np.int64(0)
    for row in range(rows):
        size = np.int64(0)
        for feature in range(features):
            count, width = counts[feature], widths[feature]
            base = bases[feature] + row * count * width
            sizes[feature] = list_size(integers, kinds[feature], count, width, base)
            name = name_starts[feature + 1] - name_starts[feature]
            size += field_size(field_size(name) + field_size(field_size(sizes[feature])))
        start = at + HEAD
        at = write_head(out, start, 10, size)
        for feature in range(features):
            count, width, kind = counts[feature], widths[feature], kinds[feature]
            base = bases[feature] + row * count * width
            name = name_starts[feature + 1] - name_starts[feature]
            value = field_size(sizes[feature])
            at = write_head(out, at, 10, field_size(name) + field_size(value))
            at = write_head(out, at, 10, name)
            copy_bytes(out, at, names, name_starts[feature], np.int64(name))
            at = write_head(out, at + name, 18, value)
            at = write_head(out, at, 8 * kind + 2, sizes[feature])
            at = write_list(data, integers, kind, count, width, base, sizes[feature], out, at)
        # The head comes last, once the length is known.
        write_number(out, start - HEAD, at - start, 8)
        write_number(out, start - TAIL, masked_checksum(out, start - HEAD, 8), 4)
        write_number(out, at, masked_checksum(out, start, at - start), 4)
        at += TAIL
    return at
