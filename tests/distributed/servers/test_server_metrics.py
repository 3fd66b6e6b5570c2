"""What a server counts, and when it counts as ill."""

import pytest
import torch

import graphfeed as gf
from graphfeed.distributed.servers import server_metrics
from graphfeed.distributed.servers.server_metrics import ServerMetrics

pytest.importorskip("prometheus_client")


def test_the_text_has_a_line_for_each_count() -> None:
    metrics = ServerMetrics("abc", 2)
    metrics.count_made(100)
    metrics.count_made(20)
    metrics.count_error("refused")
    with metrics.request():
        lines = metrics.text().splitlines()
    assert "graphfeed_minibatches_total 2.0" in lines
    assert "graphfeed_sent_bytes_total 120.0" in lines
    assert "# HELP graphfeed_sent_bytes_total Bytes of the answers with them." in lines
    assert "graphfeed_requests_in_flight 1.0" in lines
    assert 'graphfeed_errors_total{kind="refused"} 1.0' in lines
    assert 'graphfeed_errors_total{kind="failed"} 0.0' in lines
    assert 'graphfeed_pipeline_info{fingerprint="abc"} 1.0' in lines
    assert "graphfeed_requests_in_flight 0.0" in metrics.text().splitlines()
    typed = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert {line.partition(" ")[0].partition("{")[0] for line in lines if line[0] != "#"} == set(typed)


def test_the_text_tells_of_each_cache_and_of_those_of_equal_names_as_one() -> None:
    caches = [gf.CPUFeatureCache((2, 1), torch.float32) for _ in range(3)]
    for cache in caches:
        cache.query(torch.tensor([1, 2]))
    named = list(zip(['node "x"', "node y", "node y"], caches, strict=True))
    lines = ServerMetrics("abc", 2, lambda: list(named)).text().splitlines()
    size = float(caches[0].max_size_in_bytes)
    for name, count in (('node \\"x\\"', 1), ("node y", 2)):
        labels = f'{{kind="rows in memory, sieve",of="{name}"}}'
        assert f"graphfeed_cache_bytes{labels} {count * size}" in lines
        assert f"graphfeed_cache_hits_total{labels} 0.0" in lines
        assert f"graphfeed_cache_misses_total{labels} {count * 2.0}" in lines
    assert not any("cache" in line for line in ServerMetrics("abc", 2).text().splitlines())


def test_a_server_is_ill_when_it_closes_when_it_is_full_and_when_it_finishes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics = ServerMetrics("", 2)
    assert metrics.problem() is None
    with metrics.request():
        assert metrics.problem() is None
        with metrics.request():
            assert metrics.problem() == "2 requests wait, and others are refused"
        monkeypatch.setattr(server_metrics, "STUCK_SECONDS", -1.0)
        assert metrics.problem() == "1 requests wait, and none was finished for 0 s"
    assert metrics.problem() is None
    metrics.is_closed = True
    assert metrics.problem() == "the server is closing"


def test_a_server_without_requests_is_not_stuck_however_long_it_had_none(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = ServerMetrics("", 2)
    metrics.latest_step -= 1000
    assert metrics.problem() is None
    with metrics.request():
        assert metrics.problem() is None
