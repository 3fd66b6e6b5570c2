import gc
import math
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import graphfeed as gf
from graphfeed.storage import (
    DiskBasedFeature,
    EncodedFeature,
    TorchBasedFeature,
    cpu_cached_feature,
    gpu_cached_feature,
)
from graphfeed.testing import limits
from tests.kinds.cache_models import OddRowsRemote, Staged
from tests.kinds.digests import assert_same
from tests.kinds.refusals import check_refused
from tests.stand_ins.emulated_cuda import Cuda, check_equal

NUMBERS = st.floats(-(2.0**99), 2.0**99, width=32) | st.sampled_from([0.0, -0.0, 1e-45, -1e-42, 3.0, 1e8, 1e8 + 8])
BITS: list[Any] = [8, 4, torch.float16, torch.bfloat16]
each_bits = pytest.mark.parametrize("bits", BITS, ids=str)


def feature_of(count: int = 300, columns: int = 7) -> TorchBasedFeature:
    rows = torch.randn(count, columns, generator=torch.Generator().manual_seed(0))
    return TorchBasedFeature(rows * 10.0 ** torch.arange(-3, columns - 3))


def reference(feature: EncodedFeature) -> torch.Tensor:
    """Decode all rows with NumPy, one number at a time."""
    codes = feature.stored.read().numpy()
    assert feature._scale is not None
    assert feature._offset is not None
    scale, offset = feature._scale.numpy(), feature._offset.numpy()
    rows = np.empty((len(codes), len(scale)), np.float32)
    for row, own in enumerate(codes):
        for column in range(len(scale)):
            byte = own[column * feature.bits // 8]
            code = byte if feature.bits == 8 else byte >> 4 if column % 2 else byte & 15
            rows[row, column] = np.float32(np.float32(code) * scale[column]) + offset[column]
    return torch.from_numpy(rows)


@pytest.mark.parametrize("bits", [8, 4])
@given(data=st.data(), columns=st.integers(1, 6), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_it_decodes_as_numpy_does_and_no_error_exceeds_the_bound(
    bits: int, data: st.DataObject, columns: int, dtype: torch.dtype
) -> None:
    lists = data.draw(st.lists(st.lists(NUMBERS, min_size=columns, max_size=columns), max_size=20))
    rows = torch.tensor(lists, dtype=dtype).reshape(-1, columns)
    feature = TorchBasedFeature(rows).encode(bits)
    assert_same(feature.read(), reference(feature))
    assert (feature.count(), feature.size(), feature.dtype) == (len(rows), (columns,), torch.float32)
    assert feature.bound is not None
    assert feature._scale is not None
    for column, own in enumerate(rows.T.tolist()):
        found, bound = feature.read()[:, column].tolist(), Fraction(feature.bound[column].item())
        assert all(abs(Fraction(a) - Fraction(b)) <= bound for a, b in zip(own, found, strict=True))
        # Half a step, and the rounding of a product and a sum.
        most = feature._scale[column].item() / 2 + 2e-7 * max(map(abs, own), default=0) + 2e-45
        assert bound <= most, "nothing is clipped"
        if len(set(own)) == 1 and dtype == torch.float32:
            assert bound == 0, "a constant column is exact"


@pytest.mark.parametrize("bits", [8, 4])
@given(data=st.data(), columns=st.integers(0, 6))
def test_rows_with_their_own_scales_are_in_the_format_of_fbgemm(bits: int, data: st.DataObject, columns: int) -> None:
    numbers = (
        st.floats(-(2.0**14), 2.0**14, width=32) | NUMBERS if bits == 8 else st.floats(-(2.0**14), 2.0**14, width=32)
    )
    lists = data.draw(st.lists(st.lists(numbers, min_size=columns, max_size=columns), max_size=20))
    rows = torch.tensor(lists).reshape(len(lists), columns)
    feature = TorchBasedFeature(rows).encode(bits, per="row")
    codes, found = feature.stored.read(), feature.read()
    assert codes.shape == (len(rows), (columns * bits + 7) // 8 + bits)
    kind = np.float32 if bits == 8 else np.float16
    for row, own in enumerate(codes.numpy()):
        scale, offset = own[len(own) - bits :].view(kind).astype(np.float32)
        for column in range(columns):
            byte = own[column * bits // 8]
            code = byte if bits == 8 else byte >> 4 if column % 2 else byte & 15
            assert found[row, column].item() == np.float32(np.float32(code) * scale) + offset
            step = float(scale) / 2 + 2e-7 * max(map(abs, lists[row])) + 2e-45
            assert abs(found[row, column].item() - rows[row, column].item()) <= step, "nothing is clipped"
    assert feature.bound is not None
    assert ((found.double() - rows.double()).abs() <= feature.bound).all()
    if columns and bits == 4 and columns % 2 == 0 and len(rows):
        assert_same(found, torch.ops.quantized.embedding_bag_4bit_unpack(codes))
        theirs = torch.ops.quantized.embedding_bag_4bit_prepack(rows)
        read = EncodedFeature(TorchBasedFeature(theirs), 4, per="row", size=(columns,)).read()
        assert_same(read, torch.ops.quantized.embedding_bag_4bit_unpack(theirs))


@each_bits
def test_rows_of_bfloat16_are_rounded_on_request(bits: Any) -> None:
    feature, ids = feature_of(), torch.tensor([7, 0, 299])
    for per in ("column", "row")[: 1 + (bits == 8)]:
        rounded = feature.encode(bits, per=per, dtype=torch.bfloat16)  # type: ignore[arg-type]
        wanted = feature.encode(bits, per=per).read().bfloat16()  # type: ignore[arg-type]
        assert_same([rounded.read(ids), rounded.dtype], [wanted[ids], torch.bfloat16])
        assert repr(rounded).startswith("EncodedFeature(bfloat16[300, 7], ")
        assert rounded.bound is not None
        assert ((wanted.double() - feature.read().double()).abs() <= rounded.bound).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits_are_converted_as_torch_does_including_infinity_and_nan(dtype: torch.dtype) -> None:
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(dtype).reshape(-1, 4, 2)
    feature, ids = EncodedFeature(TorchBasedFeature(every), 16, size=(4, 2)), torch.randperm(len(every))
    found, wanted = feature.read(ids), every[ids].float()
    assert torch.equal(found.isnan(), wanted.isnan())
    number = ~wanted.isnan()
    assert torch.equal(found[number].view(torch.int32), wanted[number].view(torch.int32)), "bit for bit"
    rows = torch.tensor([[math.inf, 1 / 3], [math.nan, -1.0]])
    encoded = TorchBasedFeature(rows).encode(dtype)
    assert encoded.read().isnan().tolist() == [[False, False], [True, False]]
    assert encoded.bound is not None
    error = (rows[0, 1].to(dtype).double() - rows[0, 1].double()).abs().item()
    assert encoded.bound.tolist() == [0.0, pytest.approx(error, rel=1e-6)]


@each_bits
def test_ids_in_any_order_and_dtype_are_those_of_all_rows(bits: Any) -> None:
    feature = feature_of().encode(bits)
    for ids in (
        torch.tensor([299, 0, 0, 7]),
        torch.randint(0, 300, (5000,), dtype=torch.int32),
        torch.tensor([], dtype=torch.int64),
    ):
        assert_same(feature.read(ids), feature.read()[ids.long()])
        *_, last = feature.read_async(ids)
        assert_same(last.wait(), feature.read(ids))
    assert_same(TorchBasedFeature(torch.empty(0, 3)).encode(bits).read(), torch.empty(0, 3))
    assert_same(TorchBasedFeature(torch.empty(4, 0)).encode(bits).read(torch.tensor([3])), torch.empty(1, 0))
    with limits(part_values=20):
        in_parts = feature_of().encode(np.int64(bits) if isinstance(bits, int) else bits)  # type: ignore[arg-type]
    assert repr(in_parts) == repr(feature)
    assert f"{feature.bits} bits, {feature.stored.read().nbytes:,} bytes, error at most" in repr(feature)
    assert_same(in_parts.stored.read(), feature.stored.read())
    for name, array in feature.arrays().items():
        assert_same(in_parts.arrays()[name], array)
    shaped = TorchBasedFeature(torch.rand(5, 3, 5)).encode(bits)
    assert shaped.read(torch.tensor([4, 1])).shape == (2, 3, 5)


@each_bits
def test_codes_in_a_file_in_a_cache_and_in_shared_memory_give_the_same_rows(bits: Any, tmp_path: Path) -> None:
    feature, ids = feature_of().encode(bits), torch.randint(0, 300, (100,))
    wanted, codes = feature.read(ids), feature.stored.read()
    for own in (OddRowsRemote(codes), Staged(codes), cpu_cached_feature(OddRowsRemote(codes), 2000)):
        assert_same(feature.with_stored(own).read(ids), wanted)
        *_, last = feature.with_stored(own).read_async(ids)
        assert_same(last.wait(), wanted)
    assert_same(pickle.loads(pickle.dumps(feature)).read(ids), wanted)
    cached = cpu_cached_feature(feature, 2000)
    assert isinstance(cached, EncodedFeature)
    assert cached.stored.dtype == feature.stored.dtype
    for _ in range(2):
        assert_same(cached.read(ids), wanted)
        *_, last = cached.read_async(ids)
        assert_same(last.wait(), wanted)
    features = {"x": feature, "y": feature}
    shared = assert_type(cpu_cached_feature(features, 2000), dict[str, EncodedFeature])
    assert_same(shared["x"].read(ids), wanted)
    ((_, cache),) = cached.list_caches()
    assert 0 < cache.misses < 400
    if bits != torch.bfloat16:  # NumPy has none
        np.save(tmp_path / "codes.npy", codes.numpy())
        assert_same(feature.with_stored(DiskBasedFeature(tmp_path / "codes.npy")).read(ids), wanted)


@each_bits
def test_a_loader_fetches_the_same_rows_with_any_workers(bits: Any, tmp_path: Path) -> None:
    feature = feature_of().encode(bits)
    in_file = feature
    if bits != torch.bfloat16:
        np.save(tmp_path / "codes.npy", feature.stored.read().numpy())
        in_file = feature.with_stored(DiskBasedFeature(tmp_path / "codes.npy"))
    graph = gf.from_coo((torch.arange(300).roll(1), torch.arange(300)), num_nodes=300)

    def fetch(own: EncodedFeature, **options: Any) -> list[tuple[list[int], bytes]]:
        store = gf.BasicFeatureStore({("node", None, "feat"): own})
        pipe = gf.ItemSampler(gf.ItemSet(300, names="seeds"), batch_size=40, shuffle=True)
        pipe = pipe.sample_neighbor(graph, fanouts=[1, 1]).fetch_feature(store, node_feature_keys=["feat"])
        with gf.DataLoader(pipe, seed=0, **options) as loader:
            assert f"{own!r}; node feat" in loader.explain()
            found = [(b.input_nodes.tolist(), b.node_features["feat"].numpy().tobytes()) for b in loader]
            ahead = "rows of the next mini-batches in memory" in loader.explain()
            assert ahead == ("window" in options and own is not feature)
            return found

    wanted = fetch(feature)
    assert all(rows == feature.read(torch.tensor(ids)).numpy().tobytes() for ids, rows in wanted)
    assert fetch(feature, num_workers=2) == wanted
    assert fetch(in_file) == fetch(in_file, num_workers=2, window=3) == wanted
    with gf.ProcessExecutor(2) as executor:
        assert fetch(feature, executor=executor) == wanted


def test_what_does_not_fit_is_named() -> None:
    rows = torch.ones(9, 3)
    feature = TorchBasedFeature(rows).encode()
    scale, offset = torch.ones(3), torch.zeros(3)
    codes = TorchBasedFeature(torch.zeros(4, 3, dtype=torch.uint8))

    def encode(number: float, bits: Any = 8, dtype: torch.dtype = torch.float32, per: Any = "column") -> Any:
        changed = rows.to(dtype, copy=True)
        changed[5, 1] = changed[7, 0] = number
        with limits(part_values=6):
            return TorchBasedFeature(changed).encode(bits, per)

    check_refused(
        [
            (lambda: feature.read(torch.tensor([0, 9])), IndexError, "index must be in 0 .. 8, but holds 9"),
            (lambda: feature.read(torch.tensor([-1])), IndexError, "index must be in 0 .. 8, but holds -1"),
            (lambda: feature.read(torch.tensor([0.5])), TypeError, "must be torch.int32 or torch.int64"),
            (lambda: feature.read(torch.tensor([[0]])), ValueError, "must have 1 dimension"),
            (lambda: encode(math.nan), ValueError, "row 5 of the feature has nan in column 1"),
            (lambda: encode(-math.inf, 4), ValueError, "row 5 of the feature has -inf in column 1"),
            (
                lambda: encode(7e4, torch.float16),
                ValueError,
                "row 5 .* 70000 in column 1, beyond .* torch.float16; use 8",
            ),
            (
                lambda: encode(3.4e38, torch.bfloat16),
                ValueError,
                "3.4e.38 in column 1, beyond .* torch.bfloat16; use 8",
            ),
            (lambda: encode(1e39, dtype=torch.float64), ValueError, "column 0 of the rows has numbers from 1 to 1e"),
            (lambda: TorchBasedFeature(torch.tensor([[3e38], [-3e38]])).encode(), ValueError, "too far apart"),
            (lambda: TorchBasedFeature(rows.int()).encode(), TypeError, "must be floats, but are torch.int32"),
            (lambda: feature.encode(2), ValueError, "bits must be 4, 8, torch.float16 or torch.bfloat16, but is 2"),
            (lambda: feature.update(rows), NotImplementedError, "encode the new rows"),
            (lambda: feature.with_stored(TorchBasedFeature(rows)), ValueError, "stored must have the same codes"),
            (lambda: EncodedFeature(codes), ValueError, "need scale and offset"),
            (
                lambda: EncodedFeature(codes, 8, scale[:2], offset),
                ValueError,
                "offset must have 2 values, one per column",
            ),
            (lambda: EncodedFeature(codes, 4, scale, offset), ValueError, "codes must have 2 bytes per row"),
            (lambda: EncodedFeature(codes, 8, per="row"), ValueError, "need size"),
            (
                lambda: EncodedFeature(codes, 8, per="row", size=(3,)),
                ValueError,
                "codes must have 11 bytes per row for 3",
            ),
            (lambda: EncodedFeature(codes, 8, scale, offset, per="row"), ValueError, "leave them out"),
            (lambda: EncodedFeature(codes, 8, per="node"), ValueError, "per must be 'column' or 'row'"),  # type: ignore[arg-type]
            (
                lambda: EncodedFeature(codes, 8, scale, offset, dtype=torch.half),
                ValueError,
                "dtype must be torch.float32",
            ),
            (lambda: encode(1e7, 4, per="row"), ValueError, "row 5 .* of its row for torch.float16; encode per column"),
            (lambda: encode(math.nan, per="row"), ValueError, "row 5 of the feature has nan in column 1"),
            (lambda: EncodedFeature(codes, 5, scale, offset), ValueError, "bits must be 4, 8 or 16, but is 5"),
            (lambda: EncodedFeature(codes, 16), TypeError, "must have rows of float16 or bfloat16"),
            (lambda: EncodedFeature(codes, 8, scale, offset, size=(2,)), ValueError, "size .* as there are columns: 3"),
            (lambda: EncodedFeature(codes, 8, scale, offset, bound=scale[:1]), ValueError, "bound must have 3 values"),
            (
                lambda: EncodedFeature(codes, 8, scale, offset, bound=scale[:, None]),
                ValueError,
                "bound must have 1 dim",
            ),
            (lambda: EncodedFeature(codes, 8, scale, offset, size=(-1, -3)), ValueError, "size .* as many numbers as"),
            (lambda: EncodedFeature(codes, 8, [1.0], offset), TypeError, "scale must be a torch.Tensor, but is a list"),  # type: ignore[arg-type]
            (lambda: EncodedFeature(codes, 8, scale.double(), offset), TypeError, "scale must be torch.float32"),
        ]
    )


def test_negated_scales_are_decoded() -> None:
    scale = torch.tensor([1 + 2j]).conj().imag
    assert gf.ops.decode_rows(torch.tensor([[1]]).byte(), torch.tensor([0]), 8, 1, scale, torch.zeros(1)).item() == -2


@each_bits
def test_a_gpu_reads_and_decodes_codes_wherever_they_are(bits: Any, cuda: Cuda, tmp_path: Path) -> None:
    feature, ids = feature_of().encode(bits), torch.randint(0, 300, (100,))
    wanted, codes = feature.read(ids), feature.stored.read()
    with cuda.running():
        here = cuda.put(ids)
        holders: dict[str, gf.Feature] = {
            "memory": feature.stored,
            "remote": Staged(codes),
            "pinned": TorchBasedFeature(cuda.pin(codes.clone())),
            "GPU": TorchBasedFeature(cuda.put(codes)),
        }
        if bits != torch.bfloat16:
            np.save(tmp_path / "codes.npy", codes.numpy())
            holders["disk"] = DiskBasedFeature(tmp_path / "codes.npy")
        for name, holder in holders.items():
            own = feature.with_stored(holder)
            for given in (here, here.int()):
                check_equal(cuda, own.read(given), wanted)
                *_, last = own.read_async(given)
                check_equal(cuda, last.wait(), wanted)
            assert own.is_pinned() == (name == "pinned")
            cached = gpu_cached_feature(own, 3000, here.device)
            for _ in range(2):
                check_equal(cuda, cached.read(here), wanted)
        with pytest.raises(IndexError, match=r"must be in 0 \.\. 299"):
            feature.with_stored(holders["GPU"]).read(cuda.put(torch.tensor([300])))
        pickled = pickle.loads(pickle.dumps(feature))
        assert_same(pickled.read(ids), wanted)


def test_scales_on_a_gpu_outlive_a_feature_that_another_stream_still_reads(cuda: Cuda) -> None:
    feature, ids = feature_of().encode(8), torch.arange(100)
    wanted = feature.read(ids)
    with cuda.running():
        codes, here = cuda.put(feature.stored.read()), cuda.put(ids)
        own = feature.with_stored(TorchBasedFeature(codes))
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            own.read(here)
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            found = own.read(here)
            del own
            gc.collect()
            check_equal(cuda, found, wanted)
