"""Bit-by-bit comparison of mini-batches and their parts."""

import hashlib
from typing import Any

from graphfeed.testing import assert_same as assert_same
from graphfeed.testing import leaves


def digest(value: Any) -> str:
    """Return a hash that two values share if and only if all their types, shapes, key orders and bits are equal."""
    return hashlib.sha256("\n".join(f"{path} {text}" for path, text in leaves(value)).encode()).hexdigest()


def digests(values: Any) -> list[str]:
    """Return the hash of each of several values, such as the mini-batches of an epoch."""
    return [digest(value) for value in values]
