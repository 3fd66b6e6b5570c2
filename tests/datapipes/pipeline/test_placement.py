"""What the loader makes of it is in tests/loader/test_placement_rules.py."""

import graphfeed as gf
from tests import pipelines


def test_a_stage_leaves_it_to_the_loader_where_it_runs_unless_it_says_so() -> None:
    class Report(gf.Transform):
        runs_in = gf.Placement.MAIN

    pipe = pipelines.homogeneous()
    assert {stage.runs_in for stage in gf.traverse(pipe)} == {gf.Placement.AUTO}
    assert Report(pipe).runs_in is gf.Placement.MAIN
    assert Report(pipe).changed(runs_in=gf.Placement.WORKER).runs_in is gf.Placement.WORKER
