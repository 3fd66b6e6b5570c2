"""What a stage is given for its fields: each wrong value is refused by a short error that names the field."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.ops.arguments import check_fields
from tests.datapipes.stages import BUILDERS, HERE, ByFields, make_items
from tests.refusals import MOST_LETTERS

ODD: list[Any] = [
    object(), "text", "x" * 1000, b"x", -1, 1.5, float("nan"), 1 << 100, None, True, [], {}, (1, "a"), [None], {"a": 1},
    range(3), ["x" * 1000] * 9, {"x" * 99: "y" * 1000}, [[1] * 9] * 9, torch.ones(2, 2), torch.ones(10_000), np.ones(2),
]  # fmt: skip
KINDS = (TypeError, ValueError, IndexError, KeyError)
CALLED = {"prob_name": "attribute", "node_timestamp_attr_name": "attribute", "edge_timestamp_attr_name": "attribute"}
"""How errors call what no attribute of the graph has the name of."""


def given(stage: gf.Datapipe) -> dict[str, Any]:
    """Return the arguments that make a stage."""
    return {name: getattr(stage, name) for name in inspect.signature(type(stage)).parameters}


def refusal(kind: Any, values: dict[str, Any]) -> Exception | None:
    """Make a stage and its first mini-batch; return the error, if there is one."""
    try:
        next(iter(kind(**values)), None)
    except Exception as error:
        return error
    return None


def is_clear(error: Exception, name: str) -> bool:
    """Return whether an error of one of the usual kinds names a field in a few words."""
    text = str(error)
    named = name in text or CALLED.get(name, name) in text
    return isinstance(error, KINDS) and named and len(text) <= MOST_LETTERS


@pytest.mark.filterwarnings("ignore")
def test_a_value_is_taken_or_refused_by_a_short_error_that_names_its_field() -> None:
    wrong = []
    for kind in HERE:
        values = given(BUILDERS[kind]())
        for name in values:
            for odd in ODD:
                if name == "datapipe" and hasattr(odd, "__iter__"):
                    continue  # what is no mini-batch may be one to the stages of users
                error = refusal(kind, values | {name: odd})
                if error is not None and not is_clear(error, name):
                    wrong.append(f"{kind.__name__}({name}={str(odd)[:40]}): {error!r}")
    assert not wrong, "\n".join(wrong)


def test_what_is_of_no_kind_is_refused_for_each_field() -> None:
    for kind in HERE:
        values = given(BUILDERS[kind]())
        for name in values:
            assert refusal(kind, values | {name: object()}) is not None, (kind, name)


GRAPH = gf.from_coo(([0, 1], [1, 0]), 10)
ANY: Any = make_items()


def test_numbers_of_other_libraries_are_numbers() -> None:
    pipe = ANY.sample_neighbor(GRAPH, [1], np.bool_(True)).copy_to("cpu", 0)
    assert len(list(pipe.buffer(np.int64(2).item()).prefetch(np.int32(2)))) == len(ANY)


def test_fields_of_a_user_s_stage_hold_what_the_user_likes() -> None:
    stage: Any = ByFields(ANY, "ab", again=2.5)  # type: ignore[arg-type]
    check_fields(stage)
    assert (stage.by, stage.again) == ("ab", 2.5)
