"""What a sampling server counts, and how it is told."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from graphfeed.storage.memory.cache_use import Cache

Row: TypeAlias = tuple[str, str, str, dict[str, float]]
"""A metric: its name, its type, what it means, and its values by their labels."""
Caches: TypeAlias = list[tuple[str, Cache]]

STUCK_SECONDS = 60.0
"""How long a server with requests may finish none before it counts as ill."""
ERRORS = ("cancelled", "failed", "full", "refused", "unauthenticated")
"""Why requests get no mini-batch: the reader gave up, a stage failed, too many wait, another pipeline, no token."""


class ServerMetrics:
    """The counts of a sampling server. Threads share it.

    Args:
        fingerprint: A short text that differs where pipelines differ.
        most_in_flight: How many requests may be there before others are refused.
        caches: Returns the caches of the pipeline, each with the names of what it is for.
    """

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
                self.latest_step = time.monotonic()
            self.in_flight += 1
        try:
            yield
        finally:
            with self.lock:
                self.in_flight -= 1
                self.latest_step = time.monotonic()

    def count_made(self, size: int) -> None:
        """Count a mini-batch with so many bytes."""
        with self.lock:
            self.num_made += 1
            self.sent_bytes += size

    def count_error(self, kind: str) -> None:
        """Count a request that gets no mini-batch, for one of the reasons in `ERRORS`."""
        with self.lock:
            self.errors[kind] += 1

    def problem(self) -> str | None:
        """Say why no mini-batches are to be expected; None if all is well."""
        with self.lock:
            silence = time.monotonic() - self.latest_step
            if self.is_closed:
                return "the server is closing"
            if self.in_flight >= self.most_in_flight:
                return f"{self.in_flight} requests wait, and others are refused"
            if self.in_flight > 0 and silence > STUCK_SECONDS:
                return f"{self.in_flight} requests wait, and none was finished for {silence:.0f} s"
        return None

    def text(self) -> str:
        """Return the counts in Prometheus's text format."""
        with self.lock:
            rows: list[Row] = [
                ("minibatches_total", "counter", "Mini-batches made.", {"": self.num_made}),
                ("sent_bytes_total", "counter", "Bytes of the answers with them.", {"": self.sent_bytes}),
                ("requests_in_flight", "gauge", "Requests that wait or are at work.", {"": self.in_flight}),
                (
                    "errors_total",
                    "counter",
                    "Requests that got no mini-batch.",
                    {f'{{kind="{kind}"}}': count for kind, count in self.errors.items()},
                ),
                ("uptime_seconds", "gauge", "Since the server began.", {"": round(time.monotonic() - self.begin, 3)}),
                ("pipeline_info", "gauge", "The served pipeline.", {f'{{fingerprint="{self.fingerprint}"}}': 1}),
            ]
        lines = []
        for name, kind, meaning, values in [*rows, *self._cache_rows()]:
            lines += [f"# HELP graphfeed_{name} {meaning}", f"# TYPE graphfeed_{name} {kind}"]
            lines += [f"graphfeed_{name}{labels} {value}" for labels, value in values.items()]
        return "\n".join(lines) + "\n"

    def _cache_rows(self) -> list[Row]:
        """Return what there is to tell of caches, those of equal labels as one; nothing if there are none."""
        found: dict[str, list[Cache]] = {}
        for names, cache in self.caches():
            found.setdefault(labels(of=names, kind=cache.kind), []).append(cache)
        if not found:
            return []
        sizes, hits, misses = (
            {given: sum(getattr(cache, name) for cache in caches) for given, caches in found.items()}
            for name in ("max_size_in_bytes", "hits", "misses")
        )
        return [
            ("cache_bytes", "gauge", "What a cache takes when it is full.", sizes),
            ("cache_hits_total", "counter", "Rows or columns that a cache had.", hits),
            ("cache_misses_total", "counter", "Rows or columns that it lacked.", misses),
        ]


def labels(**values: str) -> str:
    """Return labels of a metric, with escapes for what ends them.

    Example:
        >>> labels(of="node feat", kind="rows")
        '{of="node feat",kind="rows"}'
    """
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    return "{" + ",".join(f'{name}="{value.translate(escapes)}"' for name, value in values.items()) + "}"
