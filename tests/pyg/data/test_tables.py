from types import SimpleNamespace

import pytest

from graphfeed.pyg.data.tables import check_data, edge_type_of, is_typed, tables_of
from tests.pyg.neighborhood import KINDS, SIZES, heterogeneous, homogeneous
from tests.pyg.stores import in_stores, sorted_data

LIKES, TO, RATES = ("user", "likes", "item"), ("user", "to", "item"), ("user", "rates", "item")


def test_tables_are_those_of_each_type_or_one_for_both() -> None:
    typed, plain = heterogeneous(), homogeneous()
    plain.node_types = 3  # any attribute may have any name
    assert is_typed(typed)
    assert not is_typed(plain)
    assert [list(tables) for tables in tables_of(typed)] == [list(SIZES), list(KINDS)]
    assert tables_of(typed).nodes["user"]["y"] is typed["user"].y
    nodes, edges = tables_of(plain)
    assert nodes[None] is edges[None]
    assert nodes[None]["x"] is plain.x


@pytest.mark.parametrize(
    ("known", "given", "found"),
    [
        ([LIKES], LIKES, LIKES),
        ([LIKES], ("user", "item"), LIKES),
        ([LIKES], ["likes"], LIKES),
        ([LIKES], ("item", "user"), None),
        ([LIKES, RATES], ("user", "item"), None),
        ([LIKES, RATES, TO], ("user", "item"), TO),
    ],
)
def test_an_edge_type_may_be_given_in_part(
    known: list[tuple[str, str, str]], given: tuple[str, ...], found: object
) -> None:
    assert edge_type_of(SimpleNamespace(edge_types=known), given) == found


def test_data_that_a_loader_can_not_take_are_refused() -> None:
    check_data(heterogeneous())
    with pytest.raises(ValueError, match="data has types, but Some needs a Data without"):
        check_data(heterogeneous(), "Some")
    with pytest.raises(TypeError, match="data must be a Data or HeteroData of PyG, but is a tuple"):
        check_data(in_stores(sorted_data(False, "coo"), "coo"))
