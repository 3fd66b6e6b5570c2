"""Stream of a sampling server, and of Arrow Flight itself with the same bytes, each from another process."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import torch

import graphfeed as gf
from benchmarks.timing import Times, in_turn
from graphfeed.distributed import SamplingServer
from graphfeed.distributed.servers.tickets import MADE
from graphfeed.distributed.wire import import_flight, to_batch

TENSORS = 20
MOST_STREAMED, ROUND_BYTES = 160, 160_000_000
"""Maximum number of mini-batches, and of bytes, that are received in one round."""
TOKEN = "benchmark"
SERVE = "import sys; from benchmarks import stream; stream.serve(sys.argv[1], int(sys.argv[2]))"
"""Not run as the main module, whose name would make the pipeline differ from the reader's."""
FLIGHT, SERVER = "Flight", "SamplingServer"


@cache
def make_tensors(size: int) -> dict[str, torch.Tensor]:
    """Return tensors with `size` bytes; every call returns the same ones."""
    return {f"tensor {number}": torch.ones(size // TENSORS // 4) for number in range(TENSORS)}


class Attacher(gf.Transform):
    """Attaches tensors of `size` bytes at no cost."""

    size: int

    def __call__(self, minibatch: gf.MiniBatch) -> gf.MiniBatch:
        """Return the mini-batch with the tensors."""
        return replace(minibatch, node_features=make_tensors(self.size))


def count(size: int) -> int:
    """Return the number of mini-batches of `size` bytes that are received in one round."""
    return min(MOST_STREAMED, ROUND_BYTES // size)


def make_pipe(size: int) -> gf.Datapipe:
    """Return a pipeline whose mini-batches cost nothing to produce."""
    items = gf.ItemSet(torch.arange(count(size)), names="seeds")
    return Attacher(gf.ItemSampler(items, batch_size=1), size)


def stream_rates(size: int, rounds: int) -> dict[str, Times]:
    """Return the GB/s of a plain server of Flight and of a sampling server, for mini-batches of `size` bytes."""
    flight = import_flight()
    with (
        server(FLIGHT, size) as plain,
        server(SERVER, size) as address,
        flight.FlightClient(f"grpc://{plain}") as client,
        gf.DataLoader(make_pipe(size), executor=gf.SamplingServers([address], token=TOKEN), seed=0) as loader,
    ):

        def read_plain(_: int) -> None:
            reader = client.do_get(flight.Ticket(b""))
            for _chunk in reader:
                pass

        def read_server(_: int) -> None:
            for _batch in loader:
                pass

        times = in_turn({FLIGHT: read_plain, SERVER: read_server}, rounds, time.perf_counter)
    total = count(size) * size / 1e9
    return {name: Times([total / seconds for seconds in single.values]) for name, single in times.items()}


@contextmanager
def server(what: str, size: int) -> Iterator[str]:
    """Start a server in another process, and yield its address."""
    command = [sys.executable, "-c", SERVE, what, str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


def serve(what: str, size: int) -> None:
    """Serve on a free port, which is printed, until the standard input ends."""
    torch.set_num_threads(1)
    if what == SERVER:
        with SamplingServer(make_pipe(size), token=TOKEN) as sampling:
            print(sampling.port, flush=True)
            sys.stdin.read()
        return
    flight = import_flight()
    batch = to_batch(MADE, next(iter(make_pipe(size))))

    def do_get(_: Any, context: Any, ticket: Any) -> Any:  # noqa: ARG001
        return flight.GeneratorStream(batch.schema, iter([batch] * count(size)))

    with type("PlainServer", (flight.FlightServerBase,), {"do_get": do_get})("grpc://127.0.0.1:0") as plain:
        print(plain.port, flush=True)
        sys.stdin.read()
