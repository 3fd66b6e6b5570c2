"""What servers send: real graphs of each kind, and no more than a reader takes."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import SamplingServer
from tests import pipelines
from tests.digests import digests
from tests.distributed.served import TOKEN, loader
from tests.golden_pipelines import numbers
from tests.scripts import start
from tests.test_edge_truth import load

pytest.importorskip("pyarrow")

COUNT = 9
"""How many mini-batches of a real graph are compared."""
WIDE_BYTES = 8_000_000
SERVE_WIDE = f"""
    import torch
    from graphfeed.distributed import SamplingServer
    from tests.distributed.servers.test_remote_executor_data import Wide
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


def cora(folder: Path) -> gf.Datapipe:
    arrays = load(folder, "cora")
    graph = gf.from_coo((arrays["src"], arrays["dst"]), int(arrays["num_nodes"]))
    items = gf.ItemSet((arrays["test_idx"], arrays["label"][arrays["test_idx"].long()]), names=("seeds", "labels"))
    return gf.ItemSampler(items, batch_size=100, shuffle=True).sample_neighbor(graph, [10, 10])


def wordnet(_: Path) -> gf.Datapipe:
    dataset = gf.datasets.wordnet()
    graph: Any = dataset.graph
    return gf.ItemSampler(dataset.train_set, batch_size=500, shuffle=True).sample_neighbor(graph, [5, 5])


def wikipedia(folder: Path) -> gf.Datapipe:
    arrays = load(folder, "wikipedia_temporal")
    pair, times = (arrays["src"].long(), arrays["dst"].long()), arrays["timestamp"].long()
    graph = gf.from_coo(
        {"user:edits:page": pair, "page:edited_by:user": pair[::-1]},
        {kind: int(arrays[f"num_nodes_{kind}"]) for kind in ("user", "page")},
        edge_attributes={"time": {"user:edits:page": times, "page:edited_by:user": times}},
    )
    chosen = numbers(2000, len(times), 40)
    items = gf.ItemSet((pair[1][chosen], times[chosen]), names=("seeds", "timestamp"))
    pipe = gf.ItemSampler(gf.HeteroItemSet({"page": items}), batch_size=200)
    return pipe.temporal_sample_neighbor(graph, [10, 5], edge_timestamp_attr_name="time", strategy="latest")


@pytest.mark.slow
@pytest.mark.parametrize("make", [cora, wordnet, wikipedia])
def test_mini_batches_of_real_graphs_are_those_of_one_machine_with_any_number_of_servers(
    shared_data: Path, make: Any
) -> None:
    pipe = make(shared_data)
    expected = digests(islice(gf.DataLoader(pipe, num_workers=0, seed=3), COUNT))
    with ExitStack() as stack:
        own = [stack.enter_context(SamplingServer(pipe, token=TOKEN, num_workers=1)) for _ in range(3)]
        for count in (1, 2, 3):
            with loader(pipe, [server.address for server in own[:count]]) as read:
                assert digests(islice(read, COUNT)) == expected
        assert all(server.num_made > 0 for server in own)


@pytest.mark.parametrize("build", [pipelines.homogeneous, pipelines.heterogeneous, pipelines.temporal_edges])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_servers_gives_the_mini_batches_of_one_machine(build: Any, count: int) -> None:
    pipe = build()
    with ExitStack() as stack:
        own = [stack.enter_context(SamplingServer(pipe, token=TOKEN, num_workers=1)) for _ in range(count)]
        with loader(pipe, [server.address for server in own]) as read:
            assert digests(read) == digests(gf.DataLoader(pipe, num_workers=0, seed=3))


def resident_bytes(process: int) -> int:
    """Return how much memory a process holds."""
    return int(Path(f"/proc/{process}/status").read_text().split("VmRSS:")[1].split()[0]) * 1024


@pytest.fixture
def wide_server() -> Iterator[tuple[int, str]]:
    """Return the process of a server, and its address."""
    process = start(SERVE_WIDE)
    try:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


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
