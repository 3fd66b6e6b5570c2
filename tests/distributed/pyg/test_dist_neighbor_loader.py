import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from graphfeed.distributed import DistContext, DistNeighborLoader, Partitioner
from tests.distributed.dist_loaders import DATA, compare
from tests.distributed.pyg.test_local_graph_store import in_time
from tests.distributed.rank_processes import end_of, free_port, result_file, run_ranks, start_rank

MODULE = "tests.distributed.dist_loaders"
SMALL = ["plain_in_time", "typed"]


def partition(root: Path, names: list[str], num_parts: int, folder: Path) -> str:
    """Write graphs in parts, and return where they are."""
    for name in names:
        Partitioner(DATA[name](folder), num_parts, root / name, method="hash").generate_partition()
    return str(root)


def test_mini_batches_of_a_single_rank_are_those_of_the_whole_graph(tmp_path: Path) -> None:
    root = partition(tmp_path, SMALL, 1, tmp_path)
    assert compare(root, "", SMALL) == {"plain_in_time": 6, "typed": 6}


@pytest.mark.slow
@pytest.mark.parametrize(("world_size", "names"), [(2, ["cora", "wordnet"]), (3, ["edits", *SMALL])])
def test_mini_batches_are_those_of_the_whole_graph(
    tmp_path: Path, shared_data: Path, world_size: int, names: list[str]
) -> None:
    root = partition(tmp_path / "parts", names, world_size, shared_data)
    options = {"root": root, "data_folder": str(shared_data), "names": names}
    for found in run_ranks(f"{MODULE}:compare", world_size, tmp_path, **options):
        assert list(found) == names
        assert min(found.values()) >= 4


@pytest.mark.slow
def test_ranks_make_uneven_numbers_of_mini_batches_and_resume(tmp_path: Path) -> None:
    root = partition(tmp_path / "parts", ["typed"], 3, tmp_path)
    found = run_ranks(f"{MODULE}:uneven", 3, tmp_path, root=root, counts=[10, 0, 41])
    assert found == [[3, 3], [0, 0], [11, 11]]


@pytest.mark.slow
def test_a_rank_that_is_killed_is_named_within_the_timeout(tmp_path: Path) -> None:
    root, port = partition(tmp_path / "parts", ["typed"], 3, tmp_path), free_port()
    ranks = [start_rank(f"{MODULE}:lose", rank, 3, tmp_path, root=root, port=port, timeout=60) for rank in range(3)]
    assert [end_of(ranks[rank]) for rank in (0, 2)] == ["", ""]
    end_of(ranks[1])
    for rank in (0, 2):
        text, seconds = json.loads(result_file(tmp_path, rank).read_text())
        assert re.match(rf"rank 1 \(\S+, process {ranks[1].pid}\) is lost: ", text)
        assert seconds < 10


def test_seeds_of_a_type_without_times_need_some() -> None:
    parts, ctx = in_time(user=torch.arange(2))[:2], DistContext(0, 0, 1, 1, "test")
    options: dict[str, Any] = {"current_ctx": ctx, "time_attr": "time", "master_addr": None, "master_port": None}
    with pytest.raises(ValueError, match=r"input_nodes of 'item' have no 'time' of their own; give input_time"):
        DistNeighborLoader(parts, [2], input_nodes=("item", torch.arange(2)), **options)
    (batch,) = DistNeighborLoader(parts, [2], input_nodes=("user", torch.arange(2)), batch_size=2, **options)
    assert batch["user"].n_id.tolist() == [0, 1]
    given = {"input_time": torch.arange(2), "batch_size": 2, **options}
    assert len(list(DistNeighborLoader(parts, [2], input_nodes=("item", torch.arange(2)), **given))) == 1
