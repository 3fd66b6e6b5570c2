"""Kernel that reads the features of `tf.train.Example` messages into columns."""

from typing import NamedTuple

import numpy as np

from graphfeed.ops.cpu.jit import Int64s, UInt8s, copy_bytes, device_function, kernel
from graphfeed.ops.cpu.records.protobuf import Layout, is_same, read_field, read_varint

FINE, MALFORMED, KIND, LENGTH, WIDTH, DOUBLE, MISSING = range(7)
LIST_OF_BYTES, LIST_OF_FLOATS, LIST_OF_INTEGERS = 1, 2, 3
"""Field numbers of a Feature."""
PLACES = 4
"""Kind of a list of bytes of which only the positions and lengths are written."""
FIRST = 10
"""Tag of a length-delimited field 1."""
SECOND = 18


@device_function
def find_name(data, start, stop, names, name_starts, guess):
    """Return the feature with a name, or -1. The guessed feature is tried first."""
    features = name_starts.size - 1
    if guess < features and is_same(data, start, stop, names, name_starts[guess], name_starts[guess + 1]):
        return guess
    for feature in range(features):
        if is_same(data, start, stop, names, name_starts[feature], name_starts[feature + 1]):
            return feature
    return -1


@device_function
def read_list(data, at, end, kind, count, width, out, integers, base, values):
    """Append the values of a list; return a code, the position, and the new number of values."""
    while at < end:
        tag, start, stop = read_field(data, at, end)
        if stop < 0:
            return MALFORMED, at, values
        if kind == LIST_OF_INTEGERS and (tag == FIRST or tag == 8):
            while start < stop:
                value, start = read_varint(data, start, stop)
                if start < 0:
                    return MALFORMED, at, values
                if values < count:
                    integers[(base >> 3) + values] = np.int64(value)
                values += 1
        elif kind == LIST_OF_FLOATS and (tag == FIRST or tag == 13):
            size = stop - start
            if size & 3:
                return MALFORMED, at, values
            if (size >> 2) <= count - values:
                copy_bytes(out, base + 4 * values, data, start, size)
            values += size >> 2
        elif kind == LIST_OF_BYTES and tag == FIRST:
            if stop - start != width:
                return WIDTH, start, stop - start
            if values < count:
                copy_bytes(out, base + width * values, data, start, np.int64(width))
            values += 1
        elif kind == PLACES and tag == FIRST:
            if values < count:
                integers[(base >> 3) + 2 * values] = start
                integers[(base >> 3) + 2 * values + 1] = stop - start
            values += 1
        elif tag >> 3 == 1:
            return MALFORMED, at, values
        at = stop
    return FINE, at, values


@device_function
def parse_feature(data, at, end, kind, count, width, out, integers, base):
    """Read a Feature; return a code, the position, and the number of values, -1 if it has no list."""
    values = np.int64(-1)
    while at < end:
        tag, start, stop = read_field(data, at, end)
        if stop < 0:
            return MALFORMED, at, values
        if tag & 7 == 2 and 1 <= tag >> 3 <= LIST_OF_INTEGERS:
            if tag >> 3 != (LIST_OF_BYTES if kind == PLACES else kind):
                return KIND, at, tag >> 3
            code, place, values = read_list(
                data, start, stop, kind, count, width, out, integers, base, max(values, np.int64(0))
            )
            if code != FINE:
                return code, place, values
        elif tag >> 3 <= LIST_OF_INTEGERS:
            return MALFORMED, at, values
        at = stop
    if values >= 0 and values != count:
        return LENGTH, at, values
    return FINE, at, values


@device_function
def find_value(data, at, end):
    """Return start and end of the name and of the value of a map entry. The last number is -1 if it is malformed."""
    name, name_stop, value, value_stop = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    while at < end:
        tag, start, stop = read_field(data, at, end)
        if stop < 0:
            return name, name_stop, value, np.int64(-1)
        if tag == FIRST:
            name, name_stop = start, stop
        elif tag == SECOND:
            value, value_stop = start, stop
        elif tag >> 3 <= 2:
            return name, name_stop, value, np.int64(-1)
        at = stop
    return name, name_stop, value, value_stop


@device_function
def read_short(data, at, end, names, name, name_stop, kind, count, width, out, integers, base):
    """Read an entry of less than 128 bytes with the expected feature; return its end, or -1 if it is anything else."""
    size = name_stop - name
    value = at + 4 + size
    # The nested messages have one or two fields, so one test of each length is enough. Entries that differ in any way
    # are left to the general functions. With only these, records of 77 bytes take twice as long.
    if kind == PLACES or end - at < size + 10 or data[at] != FIRST or data[at + 1] > min(end - at - 2, 0x7F):
        return np.int64(-1)
    stop = at + 2 + np.int64(data[at + 1])
    content = stop - value - 6
    if (
        content < 0
        or data[at + 2] != FIRST
        or data[at + 3] != size
        or data[value] != SECOND
        or data[value + 1] != content + 4
        or data[value + 2] != 8 * kind + 2
        or data[value + 3] != content + 2
        or data[value + 4] != FIRST
        or data[value + 5] != content
    ):
        return np.int64(-1)
    for place in range(size):
        if data[at + 4 + place] != names[name + place]:
            return np.int64(-1)
    value += 6
    if kind == LIST_OF_INTEGERS:
        for place in range(count):
            number, value = read_varint(data, value, stop)
            if value < 0:
                return np.int64(-1)
            integers[(base >> 3) + place] = np.int64(number)
        return stop if value == stop else np.int64(-1)
    if content != count * width or (kind == LIST_OF_BYTES and count != 1):
        return np.int64(-1)
    copy_bytes(out, base, data, value, content)
    return stop


class Defaults(NamedTuple):
    """Default rows for records that lack a feature, and the start of each feature's row, -1 if it has no default."""

    values: UInt8s
    starts: Int64s


class State(NamedTuple):
    """State of the parser: for each feature, the last record with it, and the feature that followed; and an error."""

    seen: Int64s
    follower: Int64s
    # The code, the record, the position in the data, the feature, and the value found.
    problem: Int64s


@kernel
def parse_examples(
    data: UInt8s, starts: Int64s, sizes: Int64s, layout: Layout, defaults: Defaults, out: UInt8s, integers: Int64s,
    state: State,
) -> int:  # fmt: skip
    """Write the features of each record to its row; stop at the first error, and return the number of rows written."""
    # `integers` shares the memory of `out`, which begins and ends at a multiple of 8. At first, `seen` is -1, and the
    # follower of each feature is the next one.
    names, name_starts, kinds = layout.names, layout.name_starts, layout.kinds
    counts, widths, bases = layout.counts, layout.widths, layout.bases
    features, seen, follower, problem = kinds.size, state.seen, state.follower, state.problem
    for row in range(starts.size):
        found = 0
        last = features
        at, end = starts[row], starts[row] + sizes[row]
        code, feature, detail = FINE, np.int64(-1), np.int64(0)
        while at < end and code == FINE:
            tag, entry, entries_stop = read_field(data, at, end)
            if entries_stop < 0 or (tag != FIRST and tag >> 3 == 1):
                code, feature = MALFORMED, np.int64(-1)
                break
            at = entries_stop
            while tag == FIRST and entry < entries_stop and code == FINE:
                # The records of a file nearly always have the same order of features, so the next one is guessed.
                feature = follower[last]
                if feature < features and seen[feature] != row:
                    count, width = counts[feature], widths[feature]
                    stop = read_short(
                        data, entry, entries_stop, names, name_starts[feature], name_starts[feature + 1],
                        kinds[feature], count, width, out, integers, bases[feature] + row * count * width,
                    )  # fmt: skip
                    if stop >= 0:
                        last, entry = feature, stop
                        seen[feature] = row
                        found += 1
                        continue
                inner, start, stop = read_field(data, entry, entries_stop)
                at, feature = entry, np.int64(-1)
                if stop < 0 or (inner != FIRST and inner >> 3 == 1):
                    code = MALFORMED
                    break
                entry = stop
                if inner != FIRST:
                    continue
                name, name_stop, value, value_stop = find_value(data, start, stop)
                if value_stop < 0:
                    code = MALFORMED
                    break
                feature = find_name(data, name, name_stop, names, name_starts, follower[last])
                if feature < 0:
                    continue
                follower[last] = feature
                last = feature
                if seen[feature] == row:
                    code = DOUBLE
                    break
                count, width = counts[feature], widths[feature]
                code, at, detail = parse_feature(
                    data, value, value_stop, kinds[feature], count, width, out, integers,
                    bases[feature] + row * count * width,
                )  # fmt: skip
                if detail >= 0:
                    seen[feature] = row
                    found += 1
            if code == FINE:
                at = entries_stop
        if code == FINE and found < features:
            for missing in range(features):
                size = counts[missing] * widths[missing]
                if seen[missing] == row:
                    continue
                if defaults.starts[missing] < 0:
                    code, feature, at = MISSING, missing, starts[row]
                    break
                copy_bytes(
                    out, bases[missing] + row * size, defaults.values, defaults.starts[missing], size
                )  # fmt: skip
        if code != FINE:
            problem[0], problem[1], problem[2], problem[3], problem[4] = code, row, at, feature, detail
            return row
    return starts.size
