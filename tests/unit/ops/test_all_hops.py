"""All hops of large graphs, and of several threads; `tests/laws` compares them with the reference."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from graphfeed import ops
from graphfeed.ops.cpu import pages
from graphfeed.ops.cpu.jit import INTERPRETED, Block
from graphfeed.ops.memory import ReadChoice
from graphfeed.ops.sampling.hops.hop_arrays import HopArrays
from graphfeed.ops.sampling.hops.hop_program import HopProgram, ProgramPool
from graphfeed.ops.sampling.hops.hop_recipe import Recipe
from tests.kinds import reference
from tests.kinds.digests import assert_same
from tests.kinds.hops import PlainHop, plain_hops, sample_all
from tests.laws.test_golden_bits import HELD, NARROW, measure

NUM_NODES = 2000


def random_graph(num_nodes: int = NUM_NODES, num_edges: int = 20_000) -> tuple[torch.Tensor, torch.Tensor]:
    """Return column starts and sources; some nodes have many neighbours, and some have none."""
    destinations = (torch.rand(num_edges) ** 3 * num_nodes).long()
    indptr, indices, _ = ops.coo_to_csc(torch.randint(0, num_nodes, (num_edges,)), destinations, num_nodes)
    return indptr, indices


def as_lists(layers: Sequence[PlainHop]) -> list[list[list[int]]]:
    """Return the parts of each hop."""
    return [[part.tolist() for part in layer] for layer in layers]


def test_more_edges_than_are_sorted_together_are_read_by_page() -> None:
    indptr, indices = random_graph(num_edges=pages.CHUNK + 5000)
    graph, seeds = ops.Graph.checked(indptr, indices), torch.randperm(NUM_NODES)
    layers = plain_hops(graph, seeds, [-1], [1], reads=ReadChoice())
    layer = layers[0]
    assert torch.equal(layer.rows[layer.indices], indices[layer.positions])


def test_threads_don_t_meet() -> None:
    graph = random_graph()
    batches = [torch.randint(0, NUM_NODES, (64,)) for _ in range(60)]

    def sample(index: int) -> list[list[list[int]]]:
        return as_lists(sample_all(*graph, batches[index], [5, 5, 5], [index, 1, 2]))

    expected = [sample(index) for index in range(len(batches))]
    with ThreadPoolExecutor(8) as executor:
        assert list(executor.map(sample, range(len(batches)))) == expected


def test_layers_stay_as_they_are_while_others_are_made() -> None:
    graph = random_graph()
    seeds = torch.arange(200)
    layers = sample_all(*graph, seeds, [15, 10, 5], [1, 2, 3])
    expected = as_lists(layers)
    for key in range(20):
        sample_all(*graph, seeds, [15, 10, 5], [key, key, key])
    assert as_lists(layers) == expected


def test_trees_of_a_mini_batch_are_not_those_of_the_one_before() -> None:
    hops = ops.PreparedHops(ops.Graph.checked(*random_graph()), [torch.tensor([3])])
    seeds = torch.arange(200)

    def picked(trees: torch.Tensor | None = None) -> list[int]:
        positions: list[int] = hops.sample([seeds], [7], trees=trees)[0].edges[0].positions.tolist()
        return positions

    expected, in_trees = picked(), picked(seeds + 100)
    for trees, wanted in ((None, expected), (seeds + 100, in_trees)) * 3:
        assert picked(trees) == wanted
    assert expected != in_trees


BOUND = {"indptr", "sources", "types", "sums", "ranked", "ranked_sums", "node_map", "no_nodes", "scratch index"}
"""Blocks of arrays that are not the program's."""
KEPT = {"rows.first_ids", "relations.sources", "relations.destinations", "relations.order", "scratch table.slots"}
FIRST_KEPT = {"relations.edge_starts", "relations.indptr_ends"}


def spoil(arrays: HopArrays, value: int) -> set[str]:
    """Fill all arrays of an idle program that may have any values with a byte; return their names."""
    filled = set()
    scratch = {f"scratch {name}": block for name, block in arrays.scratch.items()}
    for owner, given in {**vars(arrays), **scratch}.items():
        for part in given if isinstance(given, list) else [given]:
            own = part.arrays if isinstance(part, Block) else {"": part} if isinstance(part, np.ndarray) else {}
            for name, array in own.items() if owner not in BOUND else ():
                full_name = f"{owner}.{name}".rstrip(".")
                if full_name in KEPT or not array.size:
                    continue
                content = array.reshape(-1)
                content = content[:1] if full_name == "scratch gathered.cursor" else content[full_name in FIRST_KEPT :]
                content.view(np.uint8)[:] = value
                filled.add(full_name)
    return filled


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED, reason="blocks then have the arrays of the caller")
def test_idle_programs_carry_nothing_from_one_mini_batch_into_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays are filled with large numbers, positive and negative in turn, except those that their docstring lists."""
    spoilt, held, acquire = list[set[str]](), json.loads(HELD.read_text()), ProgramPool.acquire

    def acquire_spoilt(pool: ProgramPool, recipe: Recipe) -> HopProgram:
        program = acquire(pool, recipe)
        spoilt.append(spoil(program.arrays, (0x01, 0xA5)[len(spoilt) % 2]))
        return program

    trees = ops.PreparedHops(ops.Graph.checked(*random_graph()), [torch.tensor([3])] * 2, ops.Drawing(rows="tree"))
    joined = trees.sample([torch.arange(200)], [1, 2], joined=True)
    monkeypatch.setattr(ProgramPool, "acquire", acquire_spoilt)
    for _ in range(2):
        assert_same(trees.sample([torch.arange(200)], [1, 2], joined=True), joined)
    for name, bits in held.items():
        assert name in NARROW or measure(name, num_workers=0) == bits, name
    examples = {"moments.limits", "table.keys", "picks.types", "scratch buckets.counts", "scratch queue.runs"}
    assert examples <= set().union(*spoilt)


def test_positions_beyond_32_bits(disk_path: Path) -> None:
    """All edges come from node 0, in a file without content, which takes no room."""
    indptr = [0, 2**31 - 2, 2**31 + 5, 2**34]
    indices = torch.from_numpy(np.memmap(disk_path / "indices", np.int32, "w+", shape=(2**34,)))
    columns, seeds = torch.tensor(indptr), torch.tensor([1, 2], dtype=torch.int32)
    layers = sample_all(columns, indices, seeds, [5, 60], [1, 2])
    for layer, fanout, key in zip(layers, [5, 60], [1, 2], strict=True):
        picked = reference.pick_edges(reference.Graph(indptr, []), layer.columns.tolist(), [fanout], key)
        assert layer.positions.tolist() == reference.join(picked)
        assert layer.rows.tolist() == [1, 2, 0]
    assert int(layers[1].positions.max()) > 2**33
