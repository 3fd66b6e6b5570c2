import pytest

from graphfeed.pyg.data.tables import Tables, check_data, check_untyped, tables_of
from tests.pyg.neighborhood import KINDS, SIZES, heterogeneous, homogeneous
from tests.pyg.stores import in_stores, sorted_data

LIKES, TO, RATES = ("user", "likes", "item"), ("user", "to", "item"), ("user", "rates", "item")


def test_tables_are_those_of_each_type_or_one_for_both() -> None:
    typed, plain = heterogeneous(), homogeneous()
    plain.node_types = 3  # any attribute may have any name
    found = tables_of(typed)
    assert found.typed
    assert [list(found.nodes), list(found.edges)] == [list(SIZES), list(KINDS)]
    assert found.nodes["user"]["y"] is typed["user"].y
    found = tables_of(plain)
    assert not found.typed
    assert found.nodes[None] is found.edges[None]
    assert found.nodes[None]["x"] is plain.x
    assert tables_of(found) is found


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
    assert Tables({}, dict.fromkeys(known)).edge_type(given) == found


def test_data_that_a_loader_can_not_take_are_refused() -> None:
    check_data(heterogeneous())
    with pytest.raises(ValueError, match="data has types, but Some needs a Data without"):
        check_untyped(heterogeneous(), "Some")
    with pytest.raises(TypeError, match="data must be a Data or HeteroData of PyG, but is a tuple"):
        check_data(in_stores(sorted_data(False, "coo"), "coo"))
