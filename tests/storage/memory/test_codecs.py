"""Tensors come back with their dtype, shape and bits from each format in which they are written or sent."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from graphfeed.distributed.partition.part_layout import ArrayEntry, map_entry, to_numpy
from graphfeed.interop.graphbolt import numpy_save_aligned
from graphfeed.loader.transport.pickling import decode, dump, encode
from graphfeed.storage import fused_csc_sampling_graph
from graphfeed.storage.datasets.array_files import open_array, write_array
from graphfeed.storage.graph.files.graph_file import map_fields
from graphfeed.storage.memory.mapped_file import FilePlace, find_places
from graphfeed.storage.memory.npy_file import map_npy, read_npy
from graphfeed.storage.memory.shareable import Shareable
from graphfeed.storage.memory.shared import SharedBlock
from graphfeed.storage.memory.tensor_codec import Frame, decode_tensors, encode_tensors, read_frame
from graphfeed.storage.memory.torch_files import read_array
from tests.digests import assert_same
from tests.tensors import tensor as tensor_in

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64, torch.float16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
"""Those that NumPy has, too."""
OTHERS = [torch.bfloat16, torch.float8_e4m3fn, torch.complex32]
SHAPES = [(), (0,), (3,), (2, 0), (4, 5), (2, 3, 4), (40, 5, 11), (70_000, 1)]
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as it is": lambda tensor: tensor,
    "turned": lambda tensor: tensor.movedim(0, -1) if tensor.dim() else tensor,
    "every other": lambda tensor: tensor[..., ::2] if tensor.dim() else tensor,
    "a part": lambda tensor: tensor[1:] if tensor.dim() else tensor,
    "one many times": lambda tensor: (
        tensor[:1].expand(3, *tensor.shape[1:]) if tensor.dim() and len(tensor) else tensor
    ),
}


class Box(Shareable):
    """Holds a tensor."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values


def through_a_file(
    write: Callable[[Path, NDArray[Any]], object], read: Callable[[Path], NDArray[Any]]
) -> Callable[[torch.Tensor, Path], torch.Tensor]:
    """Return a function that sends a tensor through a file of NumPy's."""

    def send(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
        write(folder / "a.npy", tensor.numpy())
        return torch.from_numpy(read(folder / "a.npy").copy(order="K"))

    return send


def tensor_of_torch(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    torch.save(tensor, folder / "a.pt")
    return torch.from_numpy(open_array(folder / "a.pt", "torch", "key"))


def frame(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    sent = Frame(*encode_tensors({"x": tensor}))
    memory = np.full(sent.size, 255, np.uint8)
    sent.write(memory)
    return decode_tensors(*read_frame(memory)[:2])[1]["x"]


def pickled(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    box = Box(tensor)  # lives until it is there
    return tensor_in(pickle.loads(pickle.dumps(box)).values)


def shared(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    block = SharedBlock.create([tensor])
    return SharedBlock.open(block.handle).tensors[0]


def place_in_a_file(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    np.save(folder / "a.npy", tensor.numpy())
    (place,) = find_places([torch.from_numpy(np.load(folder / "a.npy", mmap_mode="c"))])
    assert isinstance(place, FilePlace)
    return place.open()


def graph_file(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    edges = len(tensor)
    indptr = torch.tensor([0, edges])
    graph = fused_csc_sampling_graph(indptr, torch.zeros(edges, dtype=torch.int64), edge_attributes={"w": tensor})
    graph.save(folder / "graph")
    return tensor_in(map_fields(folder / "graph")["edge_attributes"]["w"])


def part(tensor: torch.Tensor, folder: Path) -> torch.Tensor:
    np.save(folder / "a.npy", to_numpy(tensor.contiguous()))
    name = str(tensor.dtype).removeprefix("torch.")
    return map_entry(folder, ArrayEntry("a.npy", "edge_attributes", ("a",), name, tuple(tensor.shape)))


Send = Callable[[torch.Tensor, Path], torch.Tensor]
OF_NUMPY: dict[str, Send] = {
    "npy file in memory": through_a_file(np.save, read_npy),
    "npy file, mapped": through_a_file(np.save, lambda path: read_npy(path, mapped=True)),
    "npy file, mapped to read": through_a_file(np.save, map_npy),
    "npy file in parts": through_a_file(write_array, np.load),
    "npy file at pages": through_a_file(numpy_save_aligned, np.load),
    "array of torch.save": through_a_file(lambda path, array: torch.save(array, path), read_array),
    "tensor of torch.save": tensor_of_torch,
    "place in a file": place_in_a_file,
}
FORMATS: dict[str, Send] = {
    **OF_NUMPY,
    "message of tensors": frame,
    "message between processes": lambda tensor, folder: decode(*encode(tensor)),
    "work for an executor": lambda tensor, folder: pickle.loads(dump(tensor)),
    "pickle of what is shared": pickled,
    "shared memory": shared,
    "file of a graph": graph_file,
    "file of a part": part,
}

OF_ROWS = {"npy file in parts", "file of a graph"}


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")
@pytest.mark.parametrize("name", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(dtype=st.sampled_from(DTYPES + OTHERS), shape=st.sampled_from(SHAPES), layout=st.sampled_from(sorted(LAYOUTS)))
def test_every_dtype_shape_and_layout_comes_back(
    name: str, dtype: torch.dtype, shape: tuple[int, ...], layout: str, tmp_path: Path
) -> None:
    size = torch.empty(shape, dtype=dtype).nbytes
    bits = torch.randint(0, 2, (size,), generator=torch.Generator().manual_seed(size), dtype=torch.uint8)
    value = LAYOUTS[layout](bits.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype))
    assume(name not in OF_NUMPY or dtype in DTYPES)
    assume(name != "place in a file" or value.numel())
    assume(name not in OF_ROWS or value.dim())
    assume(name != "file of a part" or dtype in (*DTYPES, torch.bfloat16))
    again = FORMATS[name](value, tmp_path)
    assert_same(again, value)


@pytest.mark.since_torch("2.6")
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")
def test_arrays_of_any_byte_order_are_read_and_can_be_written_to(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    readers: dict[str, tuple[Callable[[Path, Any], object], Callable[[Path], NDArray[Any]]]] = {
        "in memory": (np.save, read_npy),
        "mapped": (np.save, lambda path: read_npy(path, mapped=True)),
        "of torch.save": (lambda path, array: torch.save(array, path), read_array),
    }
    for name, (write, read) in readers.items():
        for kind, shape, order in (
            (">i4", (5, 3), "F"),
            (">f8", (2, 3, 4), "C"),
            ("<i8", (0, 2), "C"),
            ("|b1", (), "F"),
        ):
            array = np.arange(int(np.prod(shape))).reshape(shape).astype(kind, order=order)  # type: ignore[call-overload]
            write(path, array)
            found = read(path)
            assert found.dtype.newbyteorder("=") == array.dtype.newbyteorder("="), (name, kind)
            assert np.array_equal(found, array), (name, kind)
            assert name == "of torch.save" or found.strides == np.load(path).strides, (name, kind)
            found[...] = 1


def test_neither_sharing_nor_a_message_copies_what_lies_together() -> None:
    ids = torch.arange(100)
    header, buffers = encode_tensors({"ids": ids})
    assert np.shares_memory(buffers[0], ids.numpy())
    sent = Frame(header, buffers)
    memory = np.full(sent.size, 255, np.uint8)
    sent.write(memory)
    _, tensors = decode_tensors(*read_frame(memory)[:2])
    assert np.shares_memory(tensors["ids"].numpy(), memory)
