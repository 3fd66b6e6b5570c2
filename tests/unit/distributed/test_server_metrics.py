"""Health and metrics: the server's counters, when it is unhealthy, and the HTTP endpoint."""

import shutil
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import SamplingServer
from graphfeed.distributed.servers.server_metrics import HealthEndpoint, ServerMetrics
from graphfeed.testing import limits
from tests.kinds import pipelines
from tests.kinds.digests import digests
from tests.stand_ins.served import TOKEN, loader, make_certificate, servers
from tests.stand_ins.waiting import wait_until

prometheus = pytest.importorskip("prometheus_client")


def test_a_server_is_ill_when_it_closes_when_it_is_full_and_when_it_finishes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics = ServerMetrics("", 2)
    metrics.latest_step -= 1000  # without requests it isn't stuck, however long it had none
    assert metrics.problem() is None
    with metrics.request():
        assert metrics.problem() is None
        with metrics.request():
            assert metrics.problem() == "2 requests are waiting, and others are rejected"
        metrics.latest_step -= 100
        assert metrics.problem() == "1 requests are waiting, and none was finished for 100 s"
    assert metrics.problem() is None
    metrics.is_closed = True
    assert metrics.problem() == "the server is closing"


@pytest.fixture
def metrics() -> ServerMetrics:
    return ServerMetrics("abc", 2)


@pytest.fixture
def endpoint(no_leaks: None, metrics: ServerMetrics) -> Iterator[HealthEndpoint]:
    endpoint = HealthEndpoint(metrics, "127.0.0.1", 0, None)
    yield endpoint
    endpoint.close()
    endpoint.close()


def call(endpoint: HealthEndpoint, request: bytes, seconds: float = 10.0) -> bytes:
    """Send bytes, and return all data received until the connection ends."""
    found = b""
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=seconds) as sock:
        sock.sendall(request)
        while part := sock.recv(65536):
            found += part
    return found


def status(endpoint: HealthEndpoint, request: str) -> int:
    return int(call(endpoint, request.encode()).split()[1])


def test_health_is_200_or_503_with_the_reason(endpoint: HealthEndpoint, metrics: ServerMetrics) -> None:
    assert call(endpoint, b"GET /health HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\nok\n")
    metrics.is_closed = True
    assert status(endpoint, "GET /health HTTP/1.1\r\n\r\n") == 503
    assert call(endpoint, b"GET /health HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\nthe server is closing\n")


def test_metrics_are_in_the_text_format_of_prometheus(endpoint: HealthEndpoint) -> None:
    found = call(endpoint, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b'graphfeed_pipeline_info{fingerprint="abc"} 1.0\n' in found


@limits(peer_seconds=0.3)
@pytest.mark.parametrize("secured", [False, True])
def test_callers_that_say_nothing_delay_nobody_and_are_hung_up_on(
    no_leaks: None, tmp_path: Path, secured: bool
) -> None:
    tls = make_certificate(tmp_path) if secured else None
    endpoint = HealthEndpoint(ServerMetrics("abc", 2), "127.0.0.1", 0, tls)
    silent = [socket.create_connection(("127.0.0.1", endpoint.port), timeout=10) for _ in range(100)]
    for sock in silent[::2]:
        sock.sendall(b"GET /he")
    context = None if tls is None else ssl.create_default_context(cadata=tls[0].decode())
    for path in ("health", "metrics"):  # sequentially, silent clients would take longer than the timeout
        url = f"http{'s' * secured}://localhost:{endpoint.port}/{path}"
        with urllib.request.urlopen(url, context=context, timeout=10) as answer:
            assert answer.status == 200
    for sock in silent:
        with sock, suppress(ConnectionError):
            while sock.recv(100):
                pass
    endpoint.close()


def test_a_server_tells_what_it_did() -> None:
    pytest.importorskip("pyarrow")
    pipe = pipelines.shuffled()
    with SamplingServer(pipe, token=TOKEN) as server:
        address = server.serve_health()
        with loader(pipe, [server.address]) as own:
            list(own)
        with loader(pipelines.homogeneous(), [server.address]) as other, pytest.raises(ValueError, match="drop_last"):
            list(other)
        wrong = gf.DataLoader(pipe, 1, executor=gf.SamplingServers([server.address], token="wrong"))
        with wrong, pytest.raises(PermissionError, match="token"):
            list(wrong)
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    counts = {line.partition(" ")[0]: float(line.split()[1]) for line in lines if line[0] != "#"}
    assert counts["graphfeed_minibatches_total"] == 9
    assert counts["graphfeed_sent_bytes_total"] > 9 * 1000
    assert counts['graphfeed_errors_total{kind="refused"}'] >= 1
    assert counts['graphfeed_errors_total{kind="unauthenticated"}'] >= 1
    assert counts["graphfeed_requests_in_flight"] == 0


def test_caches_that_it_reads_through_are_in_its_metrics() -> None:
    cached, other = (gf.cpu_cached_feature(gf.TorchBasedFeature(torch.zeros(4, 1)), 1000) for _ in range(2))
    stores = [gf.BasicFeatureStore({("node", None, "x"): feature}) for feature in (cached, other)]
    pipe = gf.ItemSampler(gf.ItemSet(4, names="seeds"), batch_size=2).fetch_feature(stores[0], ["x"])
    pipe = pipe.fetch_feature(stores[1], ["x"])  # a cache of the same name, which is counted with it
    pytest.importorskip("pyarrow")
    with SamplingServer(pipe, token=TOKEN) as server:
        list(gf.DataLoader(pipe, executor=gf.SamplingServers([server.address], token=TOKEN), seed=0))
        with urllib.request.urlopen(f"http://{server.serve_health()}/metrics", timeout=10) as answer:
            found = [line for line in answer.read().decode().splitlines() if "cache_misses_total{" in line]
    assert found == ['graphfeed_cache_misses_total{kind="rows in memory, sieve",of="node x"} 8.0']


def test_other_machines_need_tls_and_no_token(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    tls = make_certificate(tmp_path)
    with SamplingServer(pipelines.shuffled(), token=TOKEN) as plain, pytest.raises(ValueError, match="without TLS"):
        plain.serve_health("0.0.0.0")
    with SamplingServer(pipelines.shuffled(), "0.0.0.0", token=TOKEN, tls=tls) as server:
        port = server.serve_health("0.0.0.0").rpartition(":")[2]
        trusted = ssl.create_default_context(cadata=tls[0].decode())
        with urllib.request.urlopen(f"https://localhost:{port}/health", context=trusted, timeout=10) as answer:
            assert answer.read() == b"ok\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl_reads_it_and_a_flood_of_garbage_hurts_neither_it_nor_the_server(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pipe = pipelines.homogeneous()
    generator = torch.Generator().manual_seed(0)
    with servers(tmp_path, 1) as (server,):
        ports = [int(address.rpartition(":")[2]) for address in (server.health, server.address)]
        memory = Path(f"/proc/{server.process.pid}/status")
        held = [socket.create_connection(("127.0.0.1", ports[0])) for _ in range(40)]
        for number in range(500):
            garbage = torch.randint(0, 256, (1 + number * 13 % 30_000,), generator=generator, dtype=torch.uint8)
            start = [b"", b"GET /health HTTP/1.1\r\n"][number // 2 % 2]
            # It may have closed the connection in the meantime.
            with socket.create_connection(("127.0.0.1", ports[number % 2]), timeout=10) as sock, suppress(OSError):
                sock.sendall(start + garbage.numpy().tobytes())
        with loader(pipe, [server.address]) as own:
            assert digests(own) == digests(gf.DataLoader(pipe, num_workers=0, seed=3))
        for sock in held:
            sock.close()

        def is_well() -> bool:
            command = ["curl", "--silent", "--max-time", "5", f"http://{server.health}/health"]
            return subprocess.run(command, capture_output=True, check=False).stdout == b"ok\n"

        wait_until(is_well, 30)
        assert int(memory.read_text().split("VmHWM:")[1].split()[0]) < 2_000_000
        assert not server.process.wait(0)
