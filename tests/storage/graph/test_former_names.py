from typing import Any

import pytest

import graphfeed as gf
from graphfeed.storage.graph.former_names import FORMER_NAMES


@pytest.mark.parametrize("former", FORMER_NAMES)
@pytest.mark.parametrize("base", [gf.SamplingGraph, gf.FusedCSCSamplingGraph])
def test_a_graph_with_a_method_by_its_former_name_is_told_the_new_one(base: Any, former: str) -> None:
    with pytest.raises(TypeError, match=rf"^Old has {former}, which nobody calls; write {FORMER_NAMES[former]}, which"):
        type("Old", (base,), {former: None})


def test_the_new_names_are_methods_and_the_former_ones_may_stand_beside_them() -> None:
    assert all(hasattr(gf.SamplingGraph, name) for name in FORMER_NAMES.values())
    assert not any(hasattr(gf.SamplingGraph, name) for name in FORMER_NAMES)
    type("Both", (gf.SamplingGraph,), dict.fromkeys([*FORMER_NAMES, *FORMER_NAMES.values()]))
