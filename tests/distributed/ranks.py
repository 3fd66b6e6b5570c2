"""Starts several ranks on this machine, as processes that share a process group over gloo."""

import importlib
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from tests.scripts import REPOSITORY

START_SECONDS = 60
END_SECONDS = 280  # the first time, kernels are compiled


def start_rank(function: str, rank: int, world_size: int, folder: Path, **options: Any) -> "subprocess.Popen[str]":
    """Start one rank: a process that calls `function`, named as "module:function", with `options`."""
    given = json.dumps([function, rank, world_size, str(folder), options])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.distributed.ranks", given],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_ranks(function: str, world_size: int, folder: Path, **options: Any) -> list[Any]:
    """Run a function on all ranks, and return what each returned; a rank that fails fails the test."""
    ranks = [start_rank(function, rank, world_size, folder, **options) for rank in range(world_size)]
    outputs = [end_of(rank) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world_size, "\n".join(outputs)
    return [json.loads(result_file(folder, rank).read_text()) for rank in range(world_size)]


def end_of(rank: "subprocess.Popen[str]", seconds: float = END_SECONDS) -> str:
    """Wait for a rank to end, and return what it printed."""
    try:
        return rank.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        rank.kill()
        return f"{rank.communicate()[0]}\nkilled after {seconds} s"


def result_file(folder: Path, rank: int) -> Path:
    return folder / f"result {rank}.json"


def main(given: str) -> None:
    """Be one rank."""
    function, rank, world_size, folder, options = json.loads(given)
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=START_SECONDS),
    )
    module, _, name = function.partition(":")
    result = getattr(importlib.import_module(module), name)(**options)
    result_file(Path(folder), rank).write_text(json.dumps(result))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
