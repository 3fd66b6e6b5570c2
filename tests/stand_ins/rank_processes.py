"""Starts several ranks on this machine, as processes that share a process group over gloo."""

import importlib
import json
import socket
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from tests.stand_ins.programs import Program, start_program

START_SECONDS = 60
END_SECONDS = 280  # long enough for compiling kernels the first time


def start_rank(function: str, rank: int, world_size: int, folder: Path, **options: Any) -> Program:
    """Start one rank: a process that calls `function`, named as "module:function", with `options`."""
    given = json.dumps([function, rank, world_size, str(folder), options])
    return start_program(f"from tests.stand_ins.rank_processes import main; main({given!r})")


def run_ranks(function: str, world_size: int, folder: Path, **options: Any) -> list[Any]:
    """Run a function on all ranks, and return their results; a rank that fails fails the test."""
    ranks = [start_rank(function, rank, world_size, folder, **options) for rank in range(world_size)]
    outputs = [end_of(rank) for rank in ranks]
    (folder / "store").unlink(missing_ok=True)  # otherwise other ranks would use it
    assert [rank.returncode for rank in ranks] == [0] * world_size, "\n".join(outputs)
    return [json.loads(result_file(folder, rank).read_text()) for rank in range(world_size)]


def run_cases(cases: Sequence[Callable[[], object]], world_size: int, folder: Path) -> None:
    """Call functions one after another, starting the ranks only once; a function that fails fails the test."""
    names = [f"{case.__module__}:{case.__name__}" for case in cases]
    run_ranks(f"{__name__}:call_all", world_size, folder, names=names)


def call_all(names: list[str]) -> None:
    """Run a rank that calls functions, each at the same time as on the other ranks."""
    for name in names:
        distributed.barrier()
        named(name)()


def named(function: str) -> Any:
    """Return the function with the name "module:function"."""
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


def end_of(rank: Program) -> str:
    """Wait for a rank to end, and return its output."""
    return rank.end(END_SECONDS).stdout


def free_port() -> int:
    """Return a port at which no process listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def run_spawned(function: str, world_size: int, **options: Any) -> tuple[int | None, str]:
    """Run a program that starts ranks without a process group by torch, like PyG's examples.

    Args:
        function: "module:function"; each rank calls it with its rank, the number of ranks, a port and `options`.
        world_size: Number of ranks.
        **options: JSON types.

    Returns:
        The exit status and the output.
    """
    given = json.dumps([function, world_size, free_port(), options])
    program = start_program(f"from tests.stand_ins.rank_processes import spawn; spawn({given!r})")
    printed = end_of(program)
    return program.returncode, printed


def spawn(given: str) -> None:
    """Run the program that starts ranks."""
    world_size = json.loads(given)[1]
    start: Any = torch.multiprocessing
    # Not start.spawn(), as in the examples, because it begins with imports. Everything else is the same.
    start.start_processes(be_spawned, (given,), nprocs=world_size, start_method="fork")


def be_spawned(rank: int, given: str) -> None:
    """Run a rank that torch spawned."""
    function, world_size, port, options = json.loads(given)
    torch.set_num_threads(1)
    named(function)(rank, world_size, port, **options)


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks."""
    group = distributed.is_initialized()
    return (distributed.get_rank(), distributed.get_world_size()) if group else (0, 1)


def result_file(folder: Path, rank: int) -> Path:
    return folder / f"result {rank}.json"


def main(given: str) -> None:
    """Run one rank."""
    function, rank, world_size, folder, options = json.loads(given)
    torch.set_num_threads(1)
    # Ranks often produce the same mini-batches, which tests compare.
    warnings.filterwarnings("ignore", "each of .* ranks builds mini-batches of all items")
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=START_SECONDS),
    )
    result = named(function)(**options)
    result_file(Path(folder), rank).write_text(json.dumps(result))
    distributed.destroy_process_group()
