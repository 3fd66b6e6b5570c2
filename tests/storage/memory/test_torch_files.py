"""Files of `torch.save` from outside: only what is allowed is made, and what a program allows itself stays."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphfeed.storage.memory.torch_files import read_array, read_tensors
from tests.digests import assert_same


def plain_dict(default_factory: Any = None) -> dict[Any, Any]:
    """Return an empty dict in place of a defaultdict."""
    del default_factory
    return {}


STAND_INS = [(plain_dict, "collections.defaultdict"), dict]


@pytest.mark.since_torch("2.6")
@pytest.mark.parametrize("dtype", ["<i8", ">i4", "<f4", "|b1"])
@pytest.mark.parametrize("shape", [(3, 2), (0, 2), ()])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_numpy_are_made_anew_of_their_bytes(tmp_path: Path, dtype: str, shape: Any, order: Any) -> None:
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype, order=order)
    torch.save(array, tmp_path / "a.pt")
    found = read_array(tmp_path / "a.pt")
    assert found.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(found, array)
    found[...] = 1


class Mine:
    """Is allowed by a program of its own."""


class Other:
    """Is allowed while a file is read."""


@pytest.fixture
def allowed(tmp_path: Path) -> Iterator[Path]:
    """Give a file with a defaultdict, in a program that allows types of its own."""
    path, known = tmp_path / "edge_feats.pt", torch.serialization.get_safe_globals()
    torch.save(defaultdict(dict, {"a": {"feats": torch.arange(3)}}), path)
    torch.serialization.add_safe_globals([Mine])
    yield path
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(known)


@pytest.mark.since_torch("2.6")
@pytest.mark.parametrize("own", [[], [defaultdict], [dict, defaultdict]])
def test_types_that_a_program_allows_are_as_before(
    allowed: Path, own: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.serialization.add_safe_globals(own)
    before, load_file = set(torch.serialization.get_safe_globals()), torch.load

    def allow_another(*arguments: Any, **options: Any) -> Any:
        torch.serialization.add_safe_globals([Other])
        return load_file(*arguments, **options)

    monkeypatch.setattr(torch, "load", allow_another)
    found = read_tensors(allowed, STAND_INS)
    assert type(found) is dict
    assert_same(found["a"]["feats"], torch.arange(3))
    assert set(torch.serialization.get_safe_globals()) == {*before, Other}


def test_threads_that_read_at_the_same_time_don_t_disturb_each_other(
    allowed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, load_file, both = set(torch.serialization.get_safe_globals()), torch.load, threading.Barrier(2)
    one_is_in, two_are_in, one_ended = (threading.Event() for _ in range(3))
    seen, found = set(), []

    def overlap(*arguments: Any, **options: Any) -> Any:
        if threading.get_ident() not in seen:  # nobody has allowed anything yet
            seen.add(threading.get_ident())
            try:
                return load_file(*arguments, **options)
            finally:
                both.wait(60)
        if not one_is_in.is_set():
            one_is_in.set()
            two_are_in.wait(0.2)
        else:
            two_are_in.set()
            one_ended.wait(0.2)
        return load_file(*arguments, **options)

    def read() -> None:
        found.append(read_tensors(allowed, STAND_INS))
        one_ended.set()

    monkeypatch.setattr(torch, "load", overlap)
    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert set(torch.serialization.get_safe_globals()) == before
