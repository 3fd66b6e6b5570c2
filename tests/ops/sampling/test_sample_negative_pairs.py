import pytest
import torch

from graphfeed import ops
from graphfeed.ops.random import bounded, draw
from graphfeed.ops.sampling.sample_negative_pairs import KnownEdges, Population

KEY = 12345
"""A key of draws."""


def columns(pairs: list[tuple[int, int]], num_nodes: int, dtype: torch.dtype = torch.int64) -> KnownEdges:
    sources, ends = torch.tensor(pairs, dtype=dtype).reshape(-1, 2).unbind(1)
    made = ops.coo_to_csc(sources, ends, num_nodes)
    return KnownEdges(made.indptr, made.indices)


def test_each_pair_is_a_function_of_the_key_and_its_place() -> None:
    found = ops.sample_negative_pairs(50, KEY, Population(30), Population(20))
    expected = [[bounded(draw(KEY, place, 0), 30), bounded(draw(KEY, place, 1), 20)] for place in range(50)]
    assert found.tolist() == expected
    assert ops.sample_negative_pairs(20, KEY, Population(30), Population(20)).tolist() == expected[:20]


def test_what_is_wrong_is_drawn_again() -> None:
    edges = columns([(source, end) for source in range(20) for end in range(source)], 20)
    found = ops.sample_negative_pairs(40, KEY, Population(20), Population(20), edges=edges)
    for place, pair in enumerate(found.tolist()):
        drawn = ([bounded(draw(KEY, place, number), 20) for number in (2 * a, 2 * a + 1)] for a in range(32))
        assert pair == next(pair for pair in drawn if pair[1] >= pair[0])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_where_almost_all_are_wrong_one_that_is_right_is_found(dtype: torch.dtype) -> None:
    size, right = 60, (17, 42)
    everything = [(source, end) for source in range(size) for end in range(size) if (source, end) != right]
    edges = columns(everything, size, dtype)
    assert (
        ops.sample_negative_pairs(3, KEY, Population(size), Population(size), edges=edges).tolist() == [list(right)] * 3
    )
    fixed = torch.tensor([17, 17])
    assert ops.sample_negative_pairs(2, KEY, fixed, Population(size), edges=edges).tolist() == [list(right)] * 2


def test_where_all_are_wrong_it_says_so() -> None:
    edges = columns([(0, 0), (0, 1)], 2)
    with pytest.raises(ValueError, match="there is no negative for pair 1"):
        ops.sample_negative_pairs(2, KEY, torch.tensor([1, 0]), Population(2), edges=edges)
    late = Population(3, times=torch.tensor([5, 6, 7]))
    with pytest.raises(ValueError, match="there is no negative for pair 0"):
        ops.sample_negative_pairs(1, KEY, late, late, limits=torch.tensor([4]))


def test_without_limits_times_do_not_matter() -> None:
    late = Population(3, times=torch.tensor([5, 6, 7]))
    found = ops.sample_negative_pairs(9, KEY, late, late)
    assert torch.equal(found, ops.sample_negative_pairs(9, KEY, Population(3), Population(3)))


def test_nodes_are_drawn_in_proportion_to_their_weights() -> None:
    weights = torch.tensor([0.0, 1.0, 0.0, 2.0, 5.0, 0.0])
    nodes = Population(6, ops.cumulate_weights(torch.tensor([0, 6]), weights))
    found = ops.sample_negative_pairs(8000, KEY, nodes, nodes)
    for column in found.unbind(1):
        counts = torch.bincount(column, minlength=6)
        assert counts[weights == 0].tolist() == [0, 0, 0]
        expected = weights[weights > 0] * 1000
        # Chi-square with 2 degrees of freedom, p = 0.001.
        assert float(((counts[weights > 0] - expected) ** 2 / expected).sum()) < 13.8


def test_the_look_at_all_keeps_to_the_weights() -> None:
    weights = torch.full((4000,), 1000.0)
    weights[:2] = torch.tensor([1.0, 3.0])
    nodes = Population(4000, ops.cumulate_weights(torch.tensor([0, 4000]), weights), torch.arange(4000))
    sources, limits = torch.zeros(4000, dtype=torch.int64), torch.ones(4000, dtype=torch.int64)
    found = ops.sample_negative_pairs(4000, KEY, sources, nodes, limits=limits)
    assert found[:, 1].max() == 1
    assert 890 < int((found[:, 1] == 0).sum()) < 1110  # 1000 +- 4 standard deviations


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"limits": torch.tensor([1])}, "limits must have 2 values"),
        ({"sources": torch.tensor([1])}, "sources must have 2"),
        ({"destinations": Population(3, torch.tensor([1, 2]))}, "weights of destinations must have 3 values"),
        ({"destinations": Population(2, torch.tensor([2, 1]))}, "never fall"),
        ({"destinations": Population(0)}, "size of destinations"),
        ({"edges": KnownEdges(torch.tensor([0, 0]), torch.tensor([], dtype=torch.int64))}, "are not in a graph of 1"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, object], text: str) -> None:
    given = {"sources": Population(3), "destinations": Population(3), **options}
    with pytest.raises(ValueError, match=text):
        ops.sample_negative_pairs(2, KEY, **given)  # type: ignore[arg-type]
