"""The health and the metrics of a sampling server over HTTP, for `curl` and for Prometheus."""

import asyncio
import hmac
import socket
import threading
from http import HTTPStatus

from graphfeed.channels.addresses import listen
from graphfeed.channels.certificates import make_server_context
from graphfeed.distributed.servers.server_metrics import ServerMetrics

LONGEST_REQUEST = 8192
"""How many bytes a request may have, its headers included."""
REQUEST_SECONDS = 5.0
"""How long a request may take, from its connection to the last byte of the answer."""
MOST_CONNECTIONS = 32
"""How many requests are served at once; others wait in the system."""


class HealthEndpoint:
    """Answers `GET /health`, by 200 or 503, and `GET /metrics`, in Prometheus's text format, from a thread of its own.

    Whatever is sent to it takes up a bounded amount of memory, files and time.

    Args:
        metrics: What it tells.
        host: The address to listen on.
        port: The port; 0 takes a free one, which is then the attribute `port`.
        token: What a request must bring in its header "Authorization: Bearer ..."; None asks for nothing.
        tls: A certificate chain and a private key, both as PEM; None speaks plain HTTP.
    """

    def __init__(
        self, metrics: ServerMetrics, host: str, port: int, token: str | None, tls: tuple[bytes, bytes] | None
    ) -> None:
        self.metrics = metrics
        self.expected = None if token is None else f"bearer {token}".encode()
        self.context = None if tls is None else make_server_context(*tls)
        self.listener = listen(host, port)
        self.listener.setblocking(False)
        self.port: int = self.listener.getsockname()[1]
        self.loop = asyncio.new_event_loop()
        self.ended = asyncio.Event()
        self.thread = threading.Thread(target=self._run, name="graphfeed-health", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Stop listening. Does nothing the second time."""
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.ended.set)
            self.thread.join(REQUEST_SECONDS)

    def respond(self, request: bytes) -> bytes:
        """Return the answer to the head of a request."""
        first, *others = request.split(b"\r\n")
        method, _, rest = first.partition(b" ")
        path, _, version = rest.partition(b" ")
        status, text = HTTPStatus.OK, ""
        if not version.startswith(b"HTTP/1."):
            status = HTTPStatus.BAD_REQUEST
        elif method not in (b"GET", b"HEAD"):
            status = HTTPStatus.METHOD_NOT_ALLOWED
        elif not self.knows_token(others):
            status = HTTPStatus.UNAUTHORIZED
        elif path == b"/metrics":
            text = self.metrics.text()
        elif path == b"/health":
            problem = self.metrics.problem()
            status, text = (HTTPStatus.OK, "ok") if problem is None else (HTTPStatus.SERVICE_UNAVAILABLE, problem)
            text += "\n"
        else:
            status = HTTPStatus.NOT_FOUND
        return write_response(status, text, with_body=method != b"HEAD")

    def knows_token(self, headers: list[bytes]) -> bool:
        """Tell whether the headers of a request hold the token; all wrong ones take the same time."""
        if self.expected is None:
            return True
        given = b""
        for line in headers:
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"authorization":
                scheme, _, secret = value.strip().partition(b" ")
                given = scheme.lower() + b" " + secret.strip()
        return hmac.compare_digest(given, self.expected)

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._listen())
        finally:
            self.loop.close()
            self.listener.close()

    async def _listen(self) -> None:
        accepting = asyncio.create_task(self._accept())
        await self.ended.wait()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(accepting, *tasks, return_exceptions=True)

    async def _accept(self) -> None:
        room = asyncio.Semaphore(MOST_CONNECTIONS)
        serving: set[asyncio.Task[None]] = set()  # a loop alone does not keep its tasks
        while True:
            await room.acquire()
            try:
                sock, _ = await self.loop.sock_accept(self.listener)
            except OSError:  # no file is left, or the caller has gone
                room.release()
                await asyncio.sleep(0.1)
                continue
            task = asyncio.create_task(self._serve(sock))
            serving.add(task)
            task.add_done_callback(serving.discard)
            task.add_done_callback(lambda _: room.release())

    async def _serve(self, sock: socket.socket) -> None:
        reader = asyncio.StreamReader(limit=LONGEST_REQUEST)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport: asyncio.Transport | None = None
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                transport, _ = await self.loop.connect_accepted_socket(lambda: protocol, sock, ssl=self.context)
                writer = asyncio.StreamWriter(transport, protocol, reader, self.loop)
                try:
                    response = self.respond(await reader.readuntil(b"\r\n\r\n"))
                except asyncio.LimitOverrunError:
                    response = write_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "", with_body=True)
                writer.write(response)
                writer.close()
                await writer.wait_closed()
        except (asyncio.IncompleteReadError, OSError):  # TimeoutError and those of TLS are among them
            pass
        finally:
            if transport is not None:
                transport.abort()
            sock.close()


def write_response(status: HTTPStatus, text: str, *, with_body: bool) -> bytes:
    """Return an answer, after which the connection ends."""
    body = (text or f"{status.value} {status.phrase}\n").encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
