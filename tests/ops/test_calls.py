from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphfeed import ops
from graphfeed.ops.calls import Call, calls, make_inputs
from graphfeed.ops.compare_kernels import moved, run
from tests.ops.calls import calls as every_call
from tests.ops.calls import other_calls
from tests.ops.graphs import strided

CALLS = calls(make_inputs(12, 100))
EVERY = every_call()
ON_ARRAYS = EVERY.keys() - other_calls().keys() - {"linked_order"}  # which returns a view


def test_a_graph_has_a_hub_and_is_the_same_at_every_call() -> None:
    first, second = make_inputs(20, 500), make_inputs(20, 500)
    assert first.indptr.diff().max() == 500
    assert all(getattr(first, name).equal(getattr(second, name)) for name in ("indptr", "indices", "weights", "times"))


@pytest.mark.parametrize("name", sorted(CALLS))
def test_every_call_is_of_a_public_operation_and_can_be_made_with_each_change(name: str) -> None:
    call: Call = CALLS[name]
    assert name.split()[0] in ops.__all__
    for change in call.changes:
        assert change.keys() <= call.arguments.keys()
        call.run(**{key: moved(value, torch.clone) for key, value in {**call.arguments, **change}.items()})


def test_checks_find_nothing_and_then_a_fault() -> None:
    for name in ("check_csc", "check_edge_types", "check_joined"):
        right, wrong = (CALLS[name].run(**{**CALLS[name].arguments, **change}) for change in CALLS[name].changes)
        assert bytes(right) == b"nothing"
        assert any(word in bytes(wrong) for word in (b"must not fall", b"must ascend", b"does not join"))


@pytest.mark.parametrize("name", sorted(ON_ARRAYS))
def test_arrays_need_not_be_contiguous(name: str) -> None:
    """Values that don't lie side by side give the same results, or are refused where they would be written to."""
    call = EVERY[name]

    def put(move: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
        made: dict[int, torch.Tensor] = {}  # what was one tensor stays one
        each = call.arguments.items()
        return {key: moved(value, lambda tensor: made.setdefault(id(tensor), move(tensor))) for key, value in each}

    plain, apart = put(torch.clone), put(strided)
    expected, error = run(call, plain), ""
    try:
        found = run(call, apart)
    except (TypeError, ValueError) as refused:
        found, error = expected, str(refused)
    assert "contiguous" in error or [part.tolist() for part in found] == [part.tolist() for part in expected]
