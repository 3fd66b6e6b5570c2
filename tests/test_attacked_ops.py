"""No argument makes an operation end the process: not by reading too far, and not by writing."""

import json
from pathlib import Path
from types import FunctionType

import pytest

from graphfeed import ops
from tests.ops import calls
from tests.scripts import REPOSITORY, run

UNCHECKED = {"group_by_type", "place_nodes"}
"""What is grouped are picks that were just made. And nodes are placed one range after the other, where a check of all
nodes' parts would cost more than a range."""
NAMES = sorted(set(calls.calls()) - UNCHECKED)


def attack(names: list[str], examples: int, record: Path, **settings: str) -> None:
    """Attack operations in a process of their own."""
    given = [json.dumps(names), str(examples), str(record)]
    done = run("-m", "tests.ops.attack", *given, cwd=REPOSITORY, seconds=280, **settings)
    last = "\n".join(done.stderr.splitlines()[-30:])
    assert done.returncode == 0, f"ended with {done.returncode} at {record.read_text()}\n{last}"


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
@pytest.mark.parametrize("half", [0, 1])
def test_no_argument_ends_the_process(half: int, tmp_path: Path) -> None:
    attack(NAMES[half::2], 25, tmp_path / "call")


@pytest.mark.slow
def test_no_argument_makes_a_kernel_reach_outside_of_an_array(tmp_path: Path) -> None:
    attack(NAMES, 60, tmp_path / "call", NUMBA_DISABLE_JIT="1")
