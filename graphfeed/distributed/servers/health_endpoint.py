"""The health and the metrics of a sampling server over HTTP, for `curl` and for Prometheus."""

import hmac
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from graphfeed.distributed.servers.server_metrics import ServerMetrics, import_prometheus
from graphfeed.distributed.wire import listen, make_server_context

REQUEST_SECONDS = 5.0
"""How long a request may take, from its connection to the last byte of the answer."""
MOST_CONNECTIONS = 128
"""How many connections are kept at once; for another one, the oldest is closed."""


class HealthEndpoint(ThreadingHTTPServer):
    """Answers `GET /health`, by 200 or 503, and `GET /metrics`, in Prometheus's text format."""

    daemon_threads = True

    # Whatever is sent to it takes up a bounded amount of memory, files and time, and idle connections delay nobody.
    # `token` is what a request must bring in its header "Authorization: Bearer ..."; None asks for nothing. `tls` is a
    # certificate chain and a private key, both as PEM.
    def __init__(
        self, metrics: ServerMetrics, host: str, port: int, token: str | None, tls: tuple[bytes, bytes] | None
    ) -> None:
        import_prometheus()  # if it lacks, say so here rather than at the first request
        context = None if tls is None else make_server_context(tls)
        super().__init__((host, port), Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listen(host, port)
        if context is not None:
            # Handshakes are made by the threads of requests, so that a slow one keeps no other waiting.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.port: int = self.socket.getsockname()[1]
        self.metrics = metrics
        self.expected = None if token is None else f"bearer {token}".encode()
        self.deadlines: dict[socket.socket, float] = {}
        """When each connection is closed at the latest, the oldest first."""
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="graphfeed-health", daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except OSError:
            # The process has no descriptor left for a connection; trying again at once would take up a core.
            time.sleep(0.1)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.lock:
            self.deadlines[request] = time.monotonic() + REQUEST_SECONDS
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.lock:
            self.deadlines.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        # Called after each connection that comes, and ten times per second.
        with self.lock:
            now = time.monotonic()
            late = [request for request, deadline in self.deadlines.items() if deadline < now]
            # A request is answered in milliseconds, so the oldest of too many connections is most likely an idle one.
            for request in {*late, *list(self.deadlines)[:-MOST_CONNECTIONS]}:
                del self.deadlines[request]
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)  # which wakes its thread

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a caller that has gone."""


class Request(BaseHTTPRequestHandler):
    """A request to a `HealthEndpoint`."""

    server: HealthEndpoint
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        """Answer with the health or the metrics."""
        metrics = self.server.metrics
        if not self._has_token():
            self._respond(401, "the token is missing or wrong\n")
        elif self.path == "/metrics":
            self._respond(200, metrics.text())
        elif self.path == "/health":
            problem = metrics.problem()
            self._respond(200 if problem is None else 503, f"{problem or 'ok'}\n")
        else:
            self._respond(404, "there are /health and /metrics\n")

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def _has_token(self) -> bool:
        scheme, _, token = self.headers.get("Authorization", "").strip().partition(" ")
        expected = self.server.expected  # all wrong tokens take the same time
        return expected is None or hmac.compare_digest(f"{scheme.lower()} {token.strip()}".encode(), expected)

    def _respond(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
