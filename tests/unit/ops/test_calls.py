"""Every operation: its valid call, on arrays of any layout; and what is said of arguments that are refused.

`tests/laws/test_swept_arguments.py` checks that every error names an argument, briefly. This module checks the messages
that users rely on.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from graphfeed import ops
from graphfeed.ops import records
from tests.kinds.calls import calls as every_call
from tests.kinds.calls import other_calls
from tests.kinds.compare_kernels import moved, run
from tests.kinds.gpu_calls import Call, calls, make_inputs
from tests.kinds.graphs import strided
from tests.kinds.refusals import Refusal, check_refused
from tests.kinds.tfrecords import as_tensor

CALLS = calls(make_inputs(12, 100))
EVERY = every_call()
ON_ARRAYS = EVERY.keys() - other_calls().keys() - {"linked_order"}  # which returns a view


def test_every_call_is_of_a_public_operation_and_can_be_made_with_each_change() -> None:
    for name, call in CALLS.items():
        assert name.split()[0] in ops.__all__
        for change in call.changes:
            assert change.keys() <= call.arguments.keys(), name
            call.run(**{key: moved(value, torch.clone) for key, value in {**call.arguments, **change}.items()})


def put(arguments: dict[str, Any], move: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    """Return the arguments of a call with all tensors moved; what was one tensor stays one."""
    made: dict[int, torch.Tensor] = {}
    each = arguments.items()
    return {key: moved(value, lambda tensor: made.setdefault(id(tensor), move(tensor))) for key, value in each}


def test_arrays_need_not_be_contiguous() -> None:
    """Values that don't lie side by side give the same results, or are refused where they would be written to."""
    for name in sorted(ON_ARRAYS):
        call = EVERY[name]
        expected, error = run(call, put(call.arguments, torch.clone)), ""
        try:
            found = run(call, put(call.arguments, strided))
        except (TypeError, ValueError) as refused:
            found, error = expected, str(refused)
        assert "contiguous" in error or [part.tolist() for part in found] == [part.tolist() for part in expected], name


NOTHING = Call(lambda **_: None, {})
"""With which `run` returns the tensors of the arguments alone."""


def test_arguments_stay_as_they_are_but_for_those_that_are_written_to() -> None:
    written = set()
    for name in ON_ARRAYS:
        arguments = put(EVERY[name].arguments, torch.clone)
        before = run(NOTHING, put(arguments, torch.clone))
        run(EVERY[name], arguments)
        if not all(left.equal(right) for left, right in zip(before, run(NOTHING, arguments), strict=True)):
            written.add(name)
    assert written == {"assign_slots", "copy_rows", "count_edges", "draw_rows", "read_rows", "train_rows"}


ANY: Any = ops
"""With which a test may give what a type checker would refuse."""
ONE, TWO, SIX = torch.tensor([0]), torch.tensor([0, 0]), torch.arange(6)
ROW, BYTES = torch.zeros(1, 2), torch.zeros(10, dtype=torch.uint8)


def gather(index: Any, values: Any = SIX) -> Any:
    return ANY.gather_rows(values, index)


ROWS: list[Refusal] = [
    (lambda: gather(torch.tensor([0, 6])), IndexError, "^index must be in 0 .. 5, but holds 6; check the ids against"),
    (lambda: gather(ONE, torch.zeros(3, device="meta")), ValueError,
     "gather works on cpu, but values is on meta; move one to the other with"),
    (lambda: ops.copy_rows(ROW, ONE, ROW, TWO), ValueError, "from_rows and to_rows .* the same length, but have 1"),
    (lambda: ops.copy_rows(ROW, ONE, ROW[:, :1].contiguous(), ONE), ValueError,
     "rows of source and out must have the same number of bytes, but have 8 and 4"),
    (lambda: ops.copy_rows(ROW, ONE + 1, ROW, ONE), IndexError, "from_rows must be in 0 .. 0, but holds 1"),
    (lambda: ops.delete_rows(SIX, torch.tensor([-1, 0])), IndexError, "places must be in 0 .. 5, but hold -1"),
    (lambda: ops.delete_rows(SIX, TWO), ValueError, "places must ascend, without duplicates; sort them"),
    (lambda: ops.new_policy("fifo", 1), ValueError,
     "policy must be one of 'sieve', 's3-fifo', 'lru', 'clock', but is 'fifo'"),
    (lambda: ops.note_rows(ops.new_row_plan(6, 2), torch.tensor([0, 6]), 0, 0, 0), IndexError, "^ids must be"),
    (lambda: ops.new_row_plan(1, 1 << 31), ValueError, "num_slots must be at most 2147483647, but is 2147483648"),
]  # fmt: skip

LAYOUT = records.ExampleLayout(["id", "w", "tag"], ["int64", "float", "bytes"], counts=[1, 2, 1], widths=[8, 4, 3])
OUT = torch.zeros(LAYOUT.buffer_bytes(1), dtype=torch.uint8)


def parse(start: int = 0, size: int = 1, out: torch.Tensor = OUT, defaults: Any = None) -> Any:
    return records.parse_examples(BYTES, torch.tensor([start]), torch.tensor([size]), LAYOUT, out, defaults)


RECORDS: list[Refusal] = [
    (lambda: parse(out=OUT[:-1]), ValueError, "out must have 24 bytes"),
    (lambda: parse(out=OUT.repeat(2)[::2]), ValueError, "out must be contiguous, but has the stride 2"),
    (lambda: parse(defaults={"w": torch.zeros(1)}), ValueError,
     "the default of 'w' must have the size of a row, but has 4 bytes"),
    (lambda: records.scan_records(as_tensor(b""), TWO, ONE, 0, verify=True), ValueError,
     "equally long, but have 2 and 1"),
    (lambda: records.scan_records(as_tensor(b""), TWO, TWO, 1, verify=True), ValueError,
     "begin must be in 0 .. 0, but is 1"),
]  # fmt: skip

OTHERS: list[Refusal] = [
    (lambda: ops.Key(0, 1, ANY), TypeError, "index must be an integer, but is"),
    (lambda: ops.set_max_uva_threads(0), ValueError, "max_uva_threads must be 1 or more, but is 0"),
    (lambda: ops.pin_in_place(torch.zeros(4, 4)[:, 1], ANY), ValueError,
     "only contiguous tensors on the CPU .* is on cpu with strides"),
    (lambda: ANY.Graph.checked(TWO, ONE[:0], ends=[(0, 0)]), TypeError, "types must be a torch"),
    (lambda: ANY.sample_hops(TWO, [ONE], [ONE], [1]), TypeError, "graph must be an ops.Graph, but is"),
]  # fmt: skip


def test_operations_on_rows_say_what_is_wrong() -> None:
    check_refused(ROWS)


def test_operations_on_records_say_what_is_wrong() -> None:
    check_refused(RECORDS)
    most = 2**63 - 1
    places = [(-1, 2), (5, 6), (11, 0), (2, -1), (most, most), (most, 1), (12, most), (0, most), (-most, 2)]
    for place in places:
        check_refused([(partial(parse, *place), ValueError, "must be inside the 10 bytes")])
    assert records.MOST_RECORD_BYTES == 2**31 - 1


def test_other_operations_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    check_refused(OTHERS)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    check_refused([(lambda: ops.pin_in_place(torch.zeros(4), ANY), RuntimeError, "pin_in_place needs a CUDA device")])
