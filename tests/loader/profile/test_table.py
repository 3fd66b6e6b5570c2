from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from graphfeed.loader.profile.epoch_record import Counters, StageRow
from graphfeed.loader.profile.summary import StageTime, summarise
from graphfeed.loader.profile.table import write_table
from graphfeed.loader.profile.verdict import Verdict, judge
from tests.loader.profile.records import make_record


def test_the_table_begins_with_the_verdict_and_has_at_most_20_lines() -> None:
    record = make_record(200)
    record.after = Counters({"x": (3, 1)}, 0, 10**10)
    stages = tuple(StageTime(StageRow(n, f"Stage{n}", "worker"), n, n, 0.05, 1.0) for n in range(20))
    summary = replace(summarise([record]), stages=stages, rows={"x": (1000, 4_000_000)})
    lines = write_table(summary, judge(summary)).splitlines()
    assert len(lines) <= 20
    assert all(len(line) <= 120 for line in lines)
    assert lines[0].startswith("Your step waits 80 % of the time")
    text = "\n".join(lines)
    for part in ("Stage19", "66.00", "12 others", "workers: 2 (process)", "x 1,000 rows, 4.00 MB", "x 75 % of 4 rows"):
        assert part in text
    assert "Stage3\n" not in text  # it is among the others


@given(st.integers(0, 400), st.integers(0, 30), st.booleans(), st.booleans())
def test_no_table_has_more_than_20_lines(words: int, num_stages: int, has_gpu: bool, has_more: bool) -> None:
    record = make_record(200)
    if has_more:
        record.after = Counters({"x": (3, 1)}, 0, 10**10)
    stages = tuple(StageTime(StageRow(n, f"Stage{n}", "main"), n, n, 0.05, 1.0, n * has_gpu) for n in range(num_stages))
    summary = replace(summarise([record]), stages=stages, rows={"x": (1000, 4_000_000)} if has_more else {})
    lines = write_table(summary, Verdict("unclear", "word " * words + "end")).splitlines()
    assert len(lines) <= 20
    named = sum(" Stage" in line for line in lines)
    others = next((int(line.split()[1]) for line in lines if line.endswith(" others")), 0)
    assert named + others == num_stages
    assert any("GPU ms" in line for line in lines) == (has_gpu and num_stages > 1)
