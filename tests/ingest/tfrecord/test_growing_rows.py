import mmap
import tempfile
from collections.abc import Iterator

import pytest
import torch

from graphfeed.ingest.tfrecord import growing_rows
from graphfeed.ingest.tfrecord.growing_rows import GrowingRows


class FixedMap(mmap.mmap):
    """A mapping on a system that can't move mappings."""

    def resize(self, newsize: int) -> None:
        raise SystemError("mmap: resizing not available--no mremap()")


@pytest.fixture(params=["memory", "memory that can't be moved", "file"])
def descriptor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int | None]:
    monkeypatch.setattr(growing_rows, "FIRST_BYTES", 64)
    if request.param == "file":
        with tempfile.TemporaryFile() as file:
            yield file.fileno()
        return
    if request.param != "memory":
        monkeypatch.setattr(growing_rows, "map_anonymous", lambda size: FixedMap(-1, size))
    yield None


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_what_is_appended_comes_back_in_order(descriptor: int | None, lanes: int, shape: tuple[int, ...]) -> None:
    rows = GrowingRows(shape, torch.int64, lanes, descriptor)
    parts = [torch.randint(0, 100, (lanes, count, *shape)) for count in (3, 0, 1, 50, 7, 1000, 2)]
    for part in parts:
        rows.append(list(part))
    wanted = torch.cat(parts, dim=1)
    assert rows.nbytes == wanted.nbytes
    assert torch.equal(rows.finish(), wanted[0] if lanes == 1 else wanted)


def test_values_are_converted_to_the_dtype() -> None:
    rows = GrowingRows((2,), torch.float32)
    rows.append([torch.tensor([[1, 2]])])
    assert rows.finish().tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(("lanes", "shape"), [(1, (0, 4)), (2, (2, 0, 4))])
def test_no_rows_keep_their_shape(lanes: int, shape: tuple[int, ...]) -> None:
    rows = GrowingRows((4,), torch.float32, lanes)
    rows.append([torch.empty(0, 4)] * lanes)
    assert tuple(rows.finish().shape) == shape


def test_rows_of_nothing_are_counted() -> None:
    rows = GrowingRows((0,), torch.float32)
    rows.append([torch.empty(5, 0)])
    assert tuple(rows.finish().shape) == (5, 0)
