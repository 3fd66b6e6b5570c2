import torch
from hypothesis import given
from hypothesis import strategies as st

from graphfeed import ops
from tests.ops.emulated_cuda import Cuda, EmulatedCuda, check_equal


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 4)), max_size=12),
    st.sampled_from([(1,), (3,), (40,)]),
    st.sampled_from([torch.uint8, torch.float32, torch.int64]),
)
def test_the_last_of_equal_targets_stays(
    cuda: Cuda, pairs: list[tuple[int, int]], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    source = torch.randint(0, 100, (7, *shape)).to(dtype)
    from_rows = torch.tensor([row for row, _ in pairs], dtype=torch.int64)
    to_rows = torch.tensor([row for _, row in pairs], dtype=torch.int64)
    expected = torch.zeros(5, *shape, dtype=dtype)
    ops.copy_rows(source, from_rows, expected, to_rows)
    for order in cuda.each_order():
        with order, cuda.running():
            out = cuda.put(torch.zeros(5, *shape, dtype=dtype))
            ops.copy_rows(cuda.put(source), cuda.put(from_rows), out, cuda.put(to_rows))
            check_equal(cuda, out, expected)


def test_distinct_targets_need_no_scratch(cuda: Cuda) -> None:
    source, from_rows, to_rows = torch.rand(5, 3), torch.tensor([4, 0, 4, 1]), torch.tensor([2, -1, 0, 3])
    expected = torch.zeros(4, 3)
    ops.copy_rows(source, from_rows, expected, to_rows, distinct=True)
    assert torch.equal(expected[[2, 0, 3]], source[[4, 4, 1]])
    for order in cuda.each_order():
        with order, cuda.running():
            out = cuda.put(torch.zeros(4, 3))
            ops.copy_rows(cuda.put(source), cuda.put(from_rows), out, cuda.put(to_rows), distinct=True)
            check_equal(cuda, out, expected)
            if isinstance(cuda, EmulatedCuda):
                assert [name for name, _ in cuda.launches] == ["copy_rows"]
