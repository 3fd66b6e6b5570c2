"""Arguments from users: conversion to tensors, checks, and short representations of values in error messages.

All packages use these, so that error messages have the same form: the argument's name, its value, and what is allowed.
Checks of related arrays, such as those of a graph, are in the modules of the operations that need them.
"""

from graphfeed.ops.arguments.checks import (
    ID_DTYPES,
    LARGEST,
    MOST_VALUES,
    bounds,
    check_bounds,
    check_can_pin,
    check_count,
    check_ids,
    check_ids_of_each,
    check_length,
    check_position,
    check_seconds,
    check_seed,
    check_tensors,
    check_vector,
    mark_copied_below,
    parse_bytes,
)
from graphfeed.ops.arguments.declared import (
    check_arguments,
    check_fields,
    check_flags,
    checked,
    ignores,
    is_list,
    rename_overrides,
    without_ignored,
)
from graphfeed.ops.arguments.facts import are_below, mark_below, note, noted
from graphfeed.ops.arguments.tensors import NOTHING, Tensors, as_ids, as_tensor, holds_whole, is_read_only
from graphfeed.ops.arguments.texts import UnknownName, brief, check_known, kind_of, nearest

__all__ = [
    "ID_DTYPES", "LARGEST", "MOST_VALUES", "NOTHING", "Tensors", "UnknownName", "are_below", "as_ids", "as_tensor",
    "bounds", "brief", "check_arguments", "check_bounds", "check_can_pin", "check_count", "check_fields", "check_flags",
    "check_ids", "check_ids_of_each", "check_known", "check_length", "check_position", "check_seconds", "check_seed",
    "check_tensors", "check_vector", "checked", "holds_whole", "ignores", "is_list", "is_read_only", "kind_of",
    "mark_below", "mark_copied_below", "nearest", "note", "noted", "parse_bytes", "rename_overrides", "without_ignored",
]  # fmt: skip
