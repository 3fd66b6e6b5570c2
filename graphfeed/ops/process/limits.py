"""Sizes and times that are chosen for speed, and never change a result. Tests make them small."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Limits:
    """Initial sizes, sizes of parts, thresholds and waiting times. Sizes of arrays grow as needed."""

    first_edges: int = 1 << 22
    """Maximum initial capacity of a mini-batch, in edges."""
    first_table: int = 1 << 20
    """Maximum initial capacity of a hash table of nodes, in rows."""
    bounded_edges: int = 1 << 22
    """On a GPU, a hop whose fan-outs allow more edges is counted first: its arrays need about 100 bytes per edge."""
    node_map_bytes: int = 1 << 30
    """Maximum memory of all dense node maps together; beyond it, ids are hashed."""
    index_degree: int = 1024
    """Minimum degree of an indexed column: reading a smaller column is as fast as a lookup."""
    index_share: int = 3
    """At most one edge in `index_share` is indexed, which bounds the memory."""
    window_bytes: int = 10 << 20
    """Maximum size of the samples of mini-batches in memory that are sampled together; those of 1.5 MB or more gain
    nothing, and are sampled one by one."""
    checked_edges: int = 1 << 24
    """Edges between two steps of a progress bar; fewer edges have none."""
    shared_bytes: int = 1 << 25
    """Smaller arrays are not in shared memory, since each would keep a file open, and a second copy is cheap."""
    sorted_bytes: int = 1 << 30
    """Pinned arrays of this size or more are read in the order of addresses, since a GPU's TLB covers only a few GB of
    CPU memory: an H100 read rows of 4 GiB at 14 GB/s in the order of the ids, and at 27 GB/s after sorting them; rows
    of 1 GiB at 28 and 32 GB/s (`python -m benchmarks.gpu_speed tables`)."""
    part_values: int = 1 << 20
    """Ids, edges or values of files that are processed at a time."""
    part_bytes: int = 1 << 24
    """Bytes of a file that are read or written at a time."""
    cache_read_bytes: int = 1 << 22
    """Bytes of missing rows that a cache reads at a time; more would only take memory."""
    rows_per_task: int = 64
    """Smallest number of rows on disk for which a separate task of a thread pays off."""
    memory_bytes: float = math.inf
    """Memory that this process may use at most, if it is less than what the system allows."""
    read_seconds: float = 600.0
    """Time to wait for rows from a disk before this is an error."""
    preprocess_seconds: float = 4 * 3600.0
    """Time to wait for another process that preprocesses the same dataset."""
    join_seconds: float = 1.0
    """Time that a shutdown waits for threads to finish their current call."""
    end_seconds: float = 10.0
    """Time that a server which closes waits for calls to finish."""
    peer_seconds: float = 5.0
    """Time to wait for a short message that another program should send at once."""
    beat_seconds: float = 0.5
    """Time between two heartbeats of a rank."""
    answer_seconds: float = 0.004
    """Time after which a sampling server adds no further mini-batch to a response."""
    answer_bytes: int = 1 << 22
    """Size from which a sampling server adds no further mini-batch to a response."""
    waiting_requests: int = 1000
    """Requests that may wait in a sampling server; it rejects others."""
    backoff_seconds: float = 1.0
    """Time after which a lost server is queried again; it doubles with each loss, up to 60 times as long."""
    arena_bytes: int = 1 << 28
    """Size of the shared memory through which a process sends mini-batches; larger ones use separate files. It is
    address space: pages are allocated when they are first written, and the lowest free block is used."""
    uva_threads: int = 10240
    """Maximum number of threads of a kernel that reads page-locked memory; `set_max_uva_threads` changes it."""


CURRENT = [Limits()]


def current_limits() -> Limits:
    """Return the limits in use. Read them where work begins, not in an inner loop."""
    return CURRENT[0]


def set_limits(new: Limits) -> None:
    """Replace the limits of this process."""
    CURRENT[0] = new


@contextmanager
def limits(**changes: float) -> Iterator[None]:
    """Change limits for a `with` block, in all threads of this process, and in processes that are forked meanwhile.

    A context variable would not reach the threads that graphfeed starts, where most of them are read. So only one
    thread may change limits at a time. Objects made in the block, such as the index of a graph, keep their sizes.

    Raises:
        TypeError: There is no such limit.
    """
    before = current_limits()
    set_limits(replace(before, **changes))  # type: ignore[arg-type]
    try:
        yield
    finally:
        set_limits(before)
