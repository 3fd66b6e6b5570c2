"""Prometheus metrics and the health of a sampling server, and both over HTTP, for Prometheus and for probes."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any, TypeAlias

from graphfeed.distributed.wire import listen, make_server_context
from graphfeed.ops.process import import_optional, install_hint
from graphfeed.storage.memory import Cache

Caches: TypeAlias = list[tuple[str, Cache]]

STUCK_SECONDS = 60.0
"""How long a server with requests may finish none before it counts as ill."""
SILENT_SECONDS = 5.0
"""How long a caller over HTTP may say nothing before it is hung up on."""
ERRORS = ("cancelled", "failed", "full", "refused", "unauthenticated")
"""Why requests get no mini-batch: the reader gave up, a stage failed, too many wait, another pipeline, no token."""


class ServerMetrics:
    """The counts of a sampling server. Threads share it."""

    # The fingerprint differs where pipelines differ. Each cache comes with the names of what it is for.
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
        """Count a request as in flight meanwhile."""
        with self.lock:
            if self.in_flight == 0:
                # A server that had nothing to do was not stuck meanwhile.
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
        """Return why the server is unhealthy; None if it is well."""
        with self.lock:
            silence = time.monotonic() - self.latest_step
            if self.is_closed:
                return "the server is closing"
            if self.in_flight >= self.most_in_flight:
                return f"{self.in_flight} requests wait, and others are refused"
            if self.in_flight > 0 and silence > STUCK_SECONDS:
                return f"{self.in_flight} requests wait, and none was finished for {silence:.0f} s"
        return None

    def collect(self) -> Iterator[Any]:
        """Yield the metrics, as prometheus_client asks of its collectors."""
        core = import_prometheus("prometheus_client.core")
        gauge, counter = core.GaugeMetricFamily, core.CounterMetricFamily
        with self.lock:
            yield counter("graphfeed_minibatches", "Mini-batches made.", self.num_made)
            yield counter("graphfeed_sent_bytes", "Bytes of the answers with them.", self.sent_bytes)
            yield gauge("graphfeed_requests_in_flight", "Requests that wait or are at work.", self.in_flight)
            errors = counter("graphfeed_errors", "Requests that got no mini-batch.", labels=["kind"])
            for kind, count in self.errors.items():
                errors.add_metric([kind], count)
            yield errors
        yield gauge("graphfeed_uptime_seconds", "Since the server began.", round(time.monotonic() - self.begin, 3))
        pipeline = gauge("graphfeed_pipeline_info", "The served pipeline.", labels=["fingerprint"])
        pipeline.add_metric([self.fingerprint], 1)
        yield pipeline
        # Prometheus takes each pair of labels once: caches that have the same are summed up.
        by_labels: dict[tuple[str, str], list[Cache]] = {}
        for names, cache in self.caches():
            by_labels.setdefault((names, cache.kind), []).append(cache)
        for attribute, family, name, meaning in (
            ("max_size_in_bytes", gauge, "cache_bytes", "What a cache takes when it is full."),
            ("hits", counter, "cache_hits", "Rows or columns that a cache had."),
            ("misses", counter, "cache_misses", "Rows or columns that it lacked."),
        ):
            rows = family(f"graphfeed_{name}", meaning, labels=["of", "kind"])
            for labels, caches in by_labels.items():
                rows.add_metric(labels, sum(getattr(cache, attribute) for cache in caches))
            if by_labels:
                yield rows


class HealthEndpoint(ThreadingHTTPServer):
    """Answers `GET /health` and `GET /metrics`, without a token; `tls` is a chain and a private key, both as PEM."""

    def __init__(self, metrics: ServerMetrics, host: str, port: int, tls: tuple[bytes, bytes] | None) -> None:
        prometheus = import_prometheus()
        registry = prometheus.CollectorRegistry()
        registry.register(metrics)
        answers_metrics: Any = prometheus.MetricsHandler.factory(registry)

        class Request(answers_metrics):  # type: ignore[misc]
            timeout = SILENT_SECONDS

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
            # Handshakes are made by the threads of requests, so that a slow one keeps no other waiting.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.port: int = self.socket.getsockname()[1]
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="graphfeed-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a caller that has gone."""


def import_prometheus(module: str = "prometheus_client") -> Any:
    return import_optional(module, "the metrics of a sampling server", install_hint("serve"))
