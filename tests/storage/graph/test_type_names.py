import re
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.storage.graph import ends_of, from_type_dict, to_type_dict


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


@pytest.mark.parametrize("wrong", ["user", "user:item", "a:b:c:d", "", ("a", "b")])
def test_another_number_of_parts_is_refused(wrong: Any) -> None:
    message = f"c_etype must have three parts, 'source:relation:destination', but is {wrong!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        gf.etype_str_to_tuple(wrong)
    if isinstance(wrong, tuple):
        with pytest.raises(ValueError, match=re.escape(message)):
            gf.etype_tuple_to_str(wrong)


def test_a_part_with_a_delimiter_could_not_be_read_back() -> None:
    with pytest.raises(ValueError, match=re.escape("c_etype has ':' in a part, ('a', 'r:s', 'b'); rename the type")):
        gf.etype_tuple_to_str(("a", "r:s", "b"))
    text: Any = "a:r:b"
    with pytest.raises(TypeError, match="c_etype must be a tuple"):
        gf.etype_tuple_to_str(text)


def test_seed_types_name_the_node_type_of_each_column() -> None:
    assert gf.seed_type_str_to_ntypes("user:likes:item", 2) == ["user", "item"]
    assert gf.seed_type_str_to_ntypes("user:item", 2) == ["user", "item"]
    assert gf.seed_type_str_to_ntypes("user:item:shop", 3) == ["user", "item", "shop"]
    assert gf.seed_type_str_to_ntypes("user", 1) == ["user"]
    with pytest.raises(ValueError, match="seeds of type 'user:likes:item' have 4 columns; name an edge 'source:rel"):
        gf.seed_type_str_to_ntypes("user:likes:item", 4)


def test_one_type_there_and_back() -> None:
    ids = torch.arange(3)
    assert gf.convert_to_hetero(ids) == {"_N": ids}
    assert gf.revert_to_homo({"_N": ids}) is ids
    several = {"_N": ids, "other": ids}
    assert gf.revert_to_homo(several) is several
    assert gf.revert_to_homo(ids) is ids
