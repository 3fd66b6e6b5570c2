"""The memory that a server takes up for a reader."""

import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import graphfeed as gf
from tests.distributed.rank_processes import start_program
from tests.distributed.served import TOKEN, loader
from tests.scripts import IMPORTS
from tests.waiting import wait_until

pytest.importorskip("pyarrow")

WIDE_BYTES = 8_000_000
SERVE_WIDE = f"""
    import torch
    from graphfeed.distributed import SamplingServer
    from tests.distributed.servers.test_remote_executor_memory import Wide
    pipe = Wide(gf.ItemSampler(gf.ItemSet(60, names="seeds"), batch_size=1))
    with SamplingServer(pipe, token={TOKEN!r}, num_workers=2) as server:
        print(server.address, flush=True)
        time.sleep(200)
"""


class Wide(gf.Transform):
    """Adds many bytes, which are made anew for each mini-batch."""

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        minibatch.labels = torch.zeros(WIDE_BYTES // 4)
        return minibatch


def resident_bytes(process: int) -> int:
    """Return how much memory a process holds."""
    return int(Path(f"/proc/{process}/status").read_text().split("VmRSS:")[1].split()[0]) * 1024


@pytest.fixture
def wide_server() -> Iterator[tuple[int, str]]:
    """Return the process of a server, and its address."""
    program = start_program(IMPORTS + textwrap.dedent(SERVE_WIDE))
    try:
        wait_until(lambda: "\n" in program.printed())
        yield program.pid, program.printed().strip()
    finally:
        program.kill()
        assert program.wait(20)


@pytest.mark.slow
def test_a_slow_reader_takes_up_a_window_of_memory_on_the_server(wide_server: tuple[int, str]) -> None:
    process, address = wide_server
    pipe = Wide(gf.ItemSampler(gf.ItemSet(60, names="seeds"), batch_size=1))
    with loader(pipe, [address], num_workers=2) as read:
        left = iter(read)
        next(left)
        begin, most = resident_bytes(process), 0
        for _ in range(40):
            time.sleep(0.05)
            most = max(most, resident_bytes(process))
        assert most - begin < 8 * WIDE_BYTES  # two are asked for at once; an epoch has 60
        assert len(list(left)) == 59
