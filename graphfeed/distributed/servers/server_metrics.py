"""Health and Prometheus metrics of a sampling server, and an HTTP endpoint for them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any, TypeAlias

from graphfeed.distributed.wire import listen, make_server_context
from graphfeed.ops.process import current_limits, import_optional, install_hint
from graphfeed.storage.memory import Cache

Caches: TypeAlias = list[tuple[str, Cache]]

STUCK_SECONDS = 60.0
"""Time without a finished request after which a server with requests is unhealthy."""
ERRORS = ("cancelled", "failed", "full", "refused", "unauthenticated")
"""Reasons for failed requests: reader disconnected, stage failed, too many waiting, other pipeline, no valid token."""


class ServerMetrics:
    """Counters of a sampling server, shared by threads."""

    # The fingerprint identifies the pipeline. Each cache comes with the names of its features or graphs.
    def __init__(self, fingerprint: str, most_in_flight: int, caches: Callable[[], Caches] = list) -> None:
        self.fingerprint = fingerprint
        self.most_in_flight = most_in_flight
        self.caches = caches
        self.is_closed = False
        self.num_made = 0
        self.sent_bytes = 0
        self.in_flight = 0
        self.errors = dict.fromkeys(ERRORS, 0)
        self.lock = threading.Lock()
        self.begin = self.latest_step = time.monotonic()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request as in flight within the block."""
        with self.lock:
            if self.in_flight == 0:
                # An idle server is not stuck.
                self.latest_step = time.monotonic()
            self.in_flight += 1
        try:
            yield
        finally:
            with self.lock:
                self.in_flight -= 1
                self.latest_step = time.monotonic()

    def count_made(self, size: int) -> None:
        with self.lock:
            self.num_made += 1
            self.sent_bytes += size

    def count_error(self, error: str) -> None:
        with self.lock:
            self.errors[error] += 1

    def problem(self) -> str | None:
        """Return why the server is unhealthy, or None if it is healthy."""
        with self.lock:
            silence = time.monotonic() - self.latest_step
            if self.is_closed:
                return "the server is closing"
            if self.in_flight >= self.most_in_flight:
                return f"{self.in_flight} requests are waiting, and others are rejected"
            if self.in_flight > 0 and silence > STUCK_SECONDS:
                return f"{self.in_flight} requests are waiting, and none was finished for {silence:.0f} s"
        return None

    def collect(self) -> Iterator[Any]:
        """Yield the metrics; prometheus_client calls this method of its collectors."""
        core = import_prometheus("prometheus_client.core")
        gauge, counter = core.GaugeMetricFamily, core.CounterMetricFamily
        with self.lock:
            yield counter("graphfeed_minibatches", "Mini-batches produced.", self.num_made)
            yield counter("graphfeed_sent_bytes", "Bytes of the responses with mini-batches.", self.sent_bytes)
            yield gauge("graphfeed_requests_in_flight", "Requests that wait or are in progress.", self.in_flight)
            errors = counter("graphfeed_errors", "Requests that got no mini-batch.", labels=["kind"])
            for kind, count in self.errors.items():
                errors.add_metric([kind], count)
            yield errors
        yield gauge("graphfeed_uptime_seconds", "Time since the start.", round(time.monotonic() - self.begin, 3))
        pipeline = gauge("graphfeed_pipeline_info", "The served pipeline.", labels=["fingerprint"])
        pipeline.add_metric([self.fingerprint], 1)
        yield pipeline
        # Prometheus allows each pair of labels once: caches with equal labels are added up.
        by_labels: dict[tuple[str, str], list[Cache]] = {}
        for names, cache in self.caches():
            by_labels.setdefault((names, cache.kind), []).append(cache)
        for attribute, family, name, meaning in (
            ("max_size_in_bytes", gauge, "cache_bytes", "Size of a full cache."),
            ("hits", counter, "cache_hits", "Rows or columns found in a cache."),
            ("misses", counter, "cache_misses", "Rows or columns not found in a cache."),
        ):
            rows = family(f"graphfeed_{name}", meaning, labels=["of", "kind"])
            for labels, caches in by_labels.items():
                rows.add_metric(labels, sum(getattr(cache, attribute) for cache in caches))
            if by_labels:
                yield rows


class HealthEndpoint(ThreadingHTTPServer):
    """Answers `GET /health` and `GET /metrics` without a token; `tls` is a chain and a private key, both as PEM."""

    def __init__(self, metrics: ServerMetrics, host: str, port: int, tls: tuple[bytes, bytes] | None) -> None:
        prometheus = import_prometheus()
        registry = prometheus.CollectorRegistry()
        registry.register(metrics)
        answers_metrics: Any = prometheus.MetricsHandler.factory(registry)

        class Request(answers_metrics):  # type: ignore[misc]
            timeout = current_limits().peer_seconds

            def do_GET(self) -> None:
                if self.path != "/health":
                    super().do_GET()
                    return
                problem = metrics.problem()
                self.send_response(200 if problem is None else 503)
                self.end_headers()
                self.wfile.write(f"{problem or 'ok'}\n".encode())

        context = None if tls is None else make_server_context(tls)
        super().__init__((host, port), Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listen(host, port)
        if context is not None:
            # The threads of requests perform the handshakes, so that a slow one doesn't delay others.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.port: int = self.socket.getsockname()[1]
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="graphfeed-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has disconnected."""


def import_prometheus(module: str = "prometheus_client") -> Any:
    return import_optional(module, "the metrics of a sampling server", install_hint("serve"))
