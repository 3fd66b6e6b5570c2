"""No argument makes an operation end the process: not by reading too far, and not by writing."""

import json
from pathlib import Path

import pytest

from graphfeed import ops
from tests.ops import calls
from tests.scripts import REPOSITORY, run

NAMES = sorted(calls.calls())
NOT_CALLED = {
    "BYTES_PER_PLACE", "MOST_SLOTS", "NOT_CACHED", "NO_EDGES", "POLICIES", "TYPE_DTYPES", "CacheSets",
    "CachedEdgeValues", "Columns", "Compacted", "CompletedFuture", "Drawing", "EdgeValues", "Found", "GuidedSums",
    "HighDegreeIndex", "HopGraph", "InducedEdges", "KnownEdges", "Picks", "PolicyState", "Population",
    "SampledHop", "SeedTimes", "TemporalGraph", "TimeOrder", "TypedEdges", "TypedHop", "TypedPicks", "draw_unkeyed",
    "max_uva_threads",
}  # fmt: skip
"""Constants, tuples of results, and what takes no arguments."""
UNCHECKED = {
    "check_columns", "check_device", "check_one_rank", "check_starts", "compact_parts", "drawing", "is_gpu",
    "joined_by", "minibatch_key", "on_gpu", "place_nodes", "split_by_type", "take_rows", "take_small", "values_of",
}  # fmt: skip
"""What other rooms call with arguments that they have checked, or that leads to no kernel."""


def attack(names: list[str], examples: int, record: Path, **settings: str) -> None:
    """Attack operations in a process of their own."""
    given = [json.dumps(names), str(examples), str(record)]
    done = run("-m", "tests.ops.attack", *given, cwd=REPOSITORY, seconds=280, **settings)
    last = "\n".join(done.stderr.splitlines()[-30:])
    assert done.returncode == 0, f"ended with {done.returncode} at {record.read_text()}\n{last}"


def test_every_public_name_is_attacked_or_takes_nothing() -> None:
    called = {name.split()[0] for name in NAMES}
    assert called | NOT_CALLED | UNCHECKED == set(ops.__all__)
    assert not called & (NOT_CALLED | UNCHECKED)


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
