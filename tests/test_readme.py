"""What the README shows is what happens."""

import re
from pathlib import Path

import pytest

from tests.pages import check_code

README = Path(__file__).resolve().parents[1] / "README.md"


def test_it_is_read_at_once() -> None:
    assert len(README.read_text().splitlines()) <= 110


@pytest.mark.slow
def test_the_code_runs_and_prints_what_is_shown() -> None:
    assert check_code(README) == 1


def test_the_picture_shows_the_plan_that_is_printed() -> None:
    start = (README.parent / "docs" / "start.md").read_text()
    plan = re.search(r"^```text\n(where .*?)^```", start, re.DOTALL | re.MULTILINE)
    assert plan
    running = re.findall(r"^(?:main|worker) .*?([A-Z]\w+)\(", plan[1], re.MULTILINE)[::-1]
    workers, window = re.findall(r"InWorkers\(num_workers=(\d+), window=(\d+)\)", plan[1])[0]
    drawn = (README.parent / "docs" / "pipeline.svg").read_text()
    stages = re.findall(r'class="stage"[^>]*>(\w+)<', drawn)
    written = [stage for stage in running if stage not in {"Sharder", "InWorkers"}]
    assert stages[: len(written)] == written
    assert sorted(stages[len(written) :]) == sorted(running)
    assert f">{workers} workers<" in drawn
    assert f">{window} in flight<" in drawn
