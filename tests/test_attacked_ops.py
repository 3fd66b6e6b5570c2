"""Whatever an operation is given: no kernel reaches too far, and each error names an argument in a few words."""

import json
from pathlib import Path
from types import FunctionType

import pytest

from graphfeed import ops
from tests.forked import in_child
from tests.ops import calls
from tests.ops.attack import attack_all
from tests.scripts import REPOSITORY, run

UNCHECKED = {"group_by_type", "place_nodes"}
"""What is grouped are picks that were just made. And nodes are placed one range after the other, where a check of all
nodes' parts would cost more than a range."""
NAMES = sorted(set(calls.calls()) - UNCHECKED)
EXAMPLES = [10, pytest.param(60, marks=pytest.mark.thorough)]


def is_operation(value: object) -> bool:
    """Tell whether this is a function that says what it raises; the others take what is checked, or reach no kernel."""
    return isinstance(value, FunctionType) and "Raises:" in (value.__doc__ or "")


def test_every_operation_is_attacked() -> None:
    doors = (ops.rows, ops.sampling, ops.structure)
    operations = {name for door in doors for name in door.__all__ if is_operation(getattr(door, name))}
    called = {name.split()[0] for name in NAMES}
    assert operations - called <= UNCHECKED
    assert called <= set(ops.__all__)


def test_valid_calls_work() -> None:
    for name, call in calls.calls().items():
        if name != "pin_in_place":
            call.run(**call.arguments)


@pytest.mark.slow
@pytest.mark.parametrize("examples", EXAMPLES)
def test_no_argument_ends_the_process_and_each_error_names_one(examples: int, tmp_path: Path) -> None:
    record = tmp_path / "call"
    said = in_child(lambda: "\n".join(attack_all(NAMES, examples, record)), seconds=280)
    assert not said, f"{said}\nat {record.read_text()}"


@pytest.mark.slow
@pytest.mark.parametrize("examples", EXAMPLES)
def test_no_argument_makes_a_kernel_reach_outside_of_an_array(examples: int, tmp_path: Path) -> None:
    given = ["-m", "tests.ops.attack", json.dumps(NAMES), str(examples), str(tmp_path / "call")]
    done = run(*given, cwd=REPOSITORY, seconds=280, NUMBA_DISABLE_JIT="1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert not done.stdout, done.stdout
