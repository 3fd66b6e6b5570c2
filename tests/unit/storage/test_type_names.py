import re
from collections.abc import Callable
from typing import Any

import torch

import graphfeed as gf
from graphfeed.storage.graph import ends_of, from_type_dict, to_type_dict
from tests.kinds.refusals import Refusal, check_refused


def test_edge_types_as_text_and_as_parts() -> None:
    assert gf.CANONICAL_ETYPE_DELIMITER == ":"
    assert gf.etype_str_to_tuple("user:likes:item") == ("user", "likes", "item")
    assert gf.etype_str_to_tuple(("user", "likes", "item")) == ("user", "likes", "item")
    assert gf.etype_tuple_to_str(("user", "likes", "item")) == "user:likes:item"


def test_what_has_no_types_has_none_as_its_only_type() -> None:
    for values in (7, {"user": 1, "item": 2}, {}):
        assert from_type_dict(to_type_dict(values)) == values
    assert to_type_dict(7) == {None: 7}
    assert [ends_of(kind) for kind in (None, "user:likes:item")] == [(None, None), ("user", "item")]


def to_tuple(wrong: Any) -> Callable[[], object]:
    return lambda: gf.etype_str_to_tuple(wrong)


def to_text(wrong: Any) -> Callable[[], object]:
    return lambda: gf.etype_tuple_to_str(wrong)


THREE_PARTS = "c_etype must have three parts, 'source:relation:destination', but is "
REFUSED: list[Refusal] = [
    *((to_tuple(wrong), ValueError, re.escape(THREE_PARTS + repr(wrong))) for wrong in ("user", "a:b", "a:b:c:d", "")),
    (to_tuple(("a", "b")), ValueError, re.escape(THREE_PARTS + "('a', 'b')")),
    (to_text(("a", "b")), ValueError, re.escape(THREE_PARTS + "('a', 'b')")),
    (to_text(("a", "r:s", "b")), ValueError, r"c_etype has ':' in a part, \('a', 'r:s', 'b'\); rename the type"),
    (to_text("a:r:b"), TypeError, "c_etype must be a tuple"),
    (lambda: gf.seed_type_str_to_ntypes("user:likes:item", 4), ValueError,
     "seeds of type 'user:likes:item' have 4 columns; name an edge type 'source:rel"),
]  # fmt: skip


def test_what_names_no_type() -> None:
    check_refused(REFUSED)


def test_seed_types_name_the_node_type_of_each_column() -> None:
    assert gf.seed_type_str_to_ntypes("user:likes:item", 2) == ["user", "item"]
    assert gf.seed_type_str_to_ntypes("user:item", 2) == ["user", "item"]
    assert gf.seed_type_str_to_ntypes("user:item:shop", 3) == ["user", "item", "shop"]
    assert gf.seed_type_str_to_ntypes("user", 1) == ["user"]


def test_one_type_there_and_back() -> None:
    ids = torch.arange(3)
    assert gf.convert_to_hetero(ids) == {"_N": ids}
    assert gf.revert_to_homo({"_N": ids}) is ids
    several = {"_N": ids, "other": ids}
    assert gf.revert_to_homo(several) is several
    assert gf.revert_to_homo(ids) is ids
