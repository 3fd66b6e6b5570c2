import pytest
import torch

from graphfeed import ops
from graphfeed.ops.random import bounded, draw
from tests import reference

KEY = 12345


def test_each_place_is_a_function_of_the_key_and_its_number() -> None:
    expected = [bounded(draw(KEY, number, 0), 30) for number in range(50)]
    assert ops.draw_places(50, KEY, 30).tolist() == expected
    assert ops.draw_places(20, KEY, 30).tolist() == expected[:20]


def test_by_weight_it_is_the_place_where_the_draw_falls() -> None:
    weights = [0.0, 2.0, 0.0, 1.0, 5.0, 0.0]
    units = reference.weights_to_units([0, 6], weights)
    sums = ops.cumulate_weights(torch.tensor([0, 6]), torch.tensor(weights))
    found = ops.draw_places(4000, KEY, 6, sums).tolist()
    assert found[:50] == [reference.find_by_weight(units, range(6), draw(KEY, number, 0)) for number in range(50)]
    counts = [found.count(place) for place in range(6)]
    assert counts[0] == counts[2] == counts[5] == 0
    assert [round(count / 500) for count in counts] == weights


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"count": -1}, "count must be 0 or more"),
        ({"size": 0}, "size must be 1 or more"),
        ({"cumulative": torch.tensor([1, 2])}, "cumulative must have 3 values, one per place, but has 2"),
        ({"cumulative": torch.tensor([1, 3, 2])}, "never fall and end above 0"),
        ({"cumulative": torch.tensor([-1, 3, 4])}, "never fall and end above 0"),
        ({"cumulative": torch.tensor([0, 0, 0])}, "never fall and end above 0"),
    ],
)
def test_wrong_arguments_are_named(changed: dict[str, object], message: str) -> None:
    right = {"count": 2, "key": 1, "size": 3, "cumulative": torch.tensor([1, 2, 3])}
    assert len(ops.draw_places(**right)) == 2  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        ops.draw_places(**{**right, **changed})  # type: ignore[arg-type]
