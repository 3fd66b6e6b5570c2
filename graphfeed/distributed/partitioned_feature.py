"""A partitioned feature: each rank reads the rows of its part locally, and other rows from their owners."""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from graphfeed import ops
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.partitioned_graph import check_held_part
from graphfeed.distributed.ranks.owners import request_from_owners
from graphfeed.distributed.ranks.peers import Peers, shared_peers
from graphfeed.distributed.ranks.transport.messages import Tensors
from graphfeed.ops.arguments import as_ids, check_ids, check_vector, checked
from graphfeed.ops.memory import buffers
from graphfeed.ops.process import in_one_step, result_of
from graphfeed.ops.rows import copy_rows, gather_unchecked
from graphfeed.storage import DeferredRead, Feature, TorchBasedFeature
from graphfeed.storage.features import ReadsAhead, RemoteFeature, Spans, check_constant, dtype_and_shape, row_type

BYTES_AHEAD = 1 << 23
"""Bytes of rows per prefetch request: large enough that the overhead per request is small."""
READERS = 2
"""Number of concurrent prefetch requests: while one response is read, the owner can prepare another."""


class PartitionedFeature(RemoteFeature, ReadsAhead):
    """Reads rows by global id, local or remote. Duplicate ids are requested once, with one request per rank at most.

    Wrapped in `cpu_cached_feature`, it caches rows of other machines that are often requested. If the rows of this
    rank's part are in memory, they take no space in the cache.

    If the rows are constant, such as those of files and those that `open_part` opens, a loader prefetches the distinct
    rows of the next mini-batches together, while earlier ones are in use. Rows that later mini-batches need too are
    kept, within its `memory_limit`. Owners that have updated their rows reject such requests, at the latest when the
    next epoch begins. `DataLoader(window=32)` also prefetches rows that are not constant, for up to 32 mini-batches;
    updates of rows already read are then not seen.

    Args:
        rows: The rows of this rank's part, in order of their ids: a tensor, or any feature.
        book: The owner of each id. With P parts and R ranks, rank `i` stores part `i // (R / P)`.
        peers: The ranks. Default: those of the default process group, shared with other graphs and features.
        name: Name of the feature on all ranks. Ranks must create features of the same name in the same order.
        identity: Fingerprint of the partition (`GraphPart.identity`), which all ranks must share.

    Raises:
        ValueError: The rows don't match the part's ids in number, or the ranks are not a multiple of the parts.

    Example:
        >>> rows = torch.tensor([[1.0], [2.0]])  # a single rank owns all of them
        >>> PartitionedFeature(rows, PartBook.from_bounds([0, 2])).read(torch.tensor([1, 0])).tolist()
        [[2.0], [1.0]]
    """

    plain_read = True
    waits_for = "other ranks"

    @checked
    def __init__(
        self,
        rows: torch.Tensor | Feature,
        book: PartBook,
        peers: Peers | None = None,
        name: str = "",
        identity: str = "",
    ) -> None:
        self.rows = check_constant(rows if isinstance(rows, Feature) else TorchBasedFeature(rows))
        self.book = book
        self.peers = shared_peers() if peers is None else peers
        self.part = check_held_part(self.book, self.peers)
        own = book.ids_of(self.part).numel()
        if self.rows.count() != own:
            raise ValueError(f"rows must have the {own} rows of part {self.part}, but has {self.rows.count()}")
        self._name = self.peers.serve(f"feature {name}".rstrip(), self._answer)
        shape = dtype_and_shape(row_type(self.rows), torch.Size([book.num_ids, *self.rows.size()]))
        said = {"rows": shape, "assignment": int(book.checksum), "identity": identity}
        self.peers.comparison.describe_part(self._name, said)
        # Whether an epoch has cached rows of other ranks on the condition that they are constant.
        self._kept_as_constant = False

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids`, shape (len(ids), ...); None reads all rows, from all ranks.

        Raises:
            IndexError: An id is negative or not below the number of rows.
            RankLostError: Another rank ended or froze.
        """
        return self._submit_read(torch.arange(self.book.num_ids, device="cpu") if ids is None else ids)()

    def read_async(self, ids: torch.Tensor) -> Generator[DeferredRead, None, None]:
        """Send the requests to the owners, then yield once: a read that waits for their responses."""
        yield DeferredRead(self._submit_read(ids))

    def split_local(self, ids: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor], None]]:
        """Return the positions of the ids with remote rows, and a function that reads the local rows from memory."""
        self.peers.comparison.check_part(self._name)
        in_memory = isinstance(self.rows, TorchBasedFeature) and self.rows.may_read_in_threads()
        if not in_memory:
            return torch.arange(ids.numel(), device="cpu"), lambda _: None
        here, rows = ids.cpu(), self.rows.read()
        is_remote = self.book.owners_of(here).numpy() != self.part

        def write_local(out: torch.Tensor) -> None:
            local = torch.from_numpy(np.flatnonzero(~is_remote))
            copy_rows(rows, self.book.offsets_of(gather_unchecked(here, local)).long(), out, local, distinct=True)

        return torch.from_numpy(np.flatnonzero(is_remote)), write_local

    def _submit_read(self, ids: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Request remote rows; return a function that reads local ones, waits, and returns all rows."""
        ids = as_ids("ids", ids)
        check_vector("ids", ids)
        check_ids("ids", ids, self.book.num_ids, IndexError)
        ids = ids.cpu()
        self.peers.comparison.check_part(self._name)
        if self.book.num_parts == 1:
            return partial(self.rows.read, ids)
        # Rows cross the network once, even if a mini-batch contains their ids several times.
        unique, _, inverse = ops.compact(ids[:0], ids, num_nodes=self.book.num_ids)
        wait = self._request(unique)
        return wait if unique.numel() == ids.numel() else lambda: gather_unchecked(wait(), inverse)

    def _request(self, ids: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Request the rows of distinct ids; return a function that reads those in memory and waits for the others."""
        remote, write_local = self.split_local(ids)
        asked = gather_unchecked(ids, remote)
        options = self._request_options()
        answers = request_from_owners(self.peers, self._name, self.book, asked, options, {"ids": asked})

        def wait() -> torch.Tensor:
            # Rows in memory are read while the responses are in flight.
            out = buffers.empty((ids.numel(), *self.size()), row_type(self.rows))
            write_local(out)
            write_answers(answers, out, remote)
            return out

        return wait

    def slow_source(self) -> ReadsAhead | None:
        """Return this feature, or None if there is a single part."""
        return None if self.dtype is None or self.book.num_parts == 1 else self

    def start_read(self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor) -> list[Future[Spans]]:
        """Prefetch rows from their owners in threads; see `ReadsAhead.start_read`."""
        rows = max(1, BYTES_AHEAD // max(1, self.row_bytes))
        parts = zip(torch.split(ids, rows), torch.split(positions, rows), strict=True)
        return [in_one_step(self._readers.submit, partial(self._read_into, out, *part)) for part in parts]

    def join(self, futures: Sequence[Future[Any]]) -> None:
        """Wait until all rows are read. Each request has its own time limit, and raises the same errors as `read`."""
        for future in futures:
            result_of(future)

    def check_unchanged(self) -> None:
        """Read one constant row of each other owner, which raises if the owner has updated its rows."""
        self._kept_as_constant = self._kept_as_constant or self.is_constant()
        if self._kept_as_constant:
            self.peers.comparison.check_part(self._name)
            # An epoch may request no rows, because it reuses those of the previous one.
            list(self._prefetch_rows(self._first_of_others))

    @cached_property
    def _first_of_others(self) -> torch.Tensor:
        others = [part for part in range(self.book.num_parts) if part != self.part]
        return torch.cat(
            [torch.empty(0, dtype=torch.int64, device="cpu"), *(self.book.ids_of(part)[:1] for part in others)]
        )

    def is_constant(self) -> bool:
        """Return whether this rank's rows never change; all ranks should open theirs in the same way."""
        return self.rows.is_constant()

    @cached_property
    def _readers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(READERS, "graphfeed-rows")

    def _prefetch_rows(self, ids: torch.Tensor) -> Iterator[tuple[torch.Tensor, Tensors]]:
        options = {"constant": self._kept_as_constant}
        return request_from_owners(self.peers, self._name, self.book, ids, options, {"ids": ids})

    def _read_into(self, out: torch.Tensor, ids: torch.Tensor, positions: torch.Tensor) -> Spans:
        answers = list(self._prefetch_rows(ids))
        write_answers(answers, out, positions)
        return Spans(len(answers), ids.numel() * self.row_bytes)

    def size(self) -> torch.Size:
        """Return the shape of a row."""
        return self.rows.size()

    def count(self) -> int:
        """Return the number of rows on all ranks."""
        return self.book.num_ids

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the rows."""
        return self.rows.dtype

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Raise: each owner updates its own rows by `rows.update`, with offsets within its part."""
        raise NotImplementedError(
            "only the owners of its rows update a partitioned feature: call feature.rows.update(value, offsets) on "
            "the rank that owns them, with offsets from feature.book.offsets_of(ids)"
        )

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of this rank's rows."""
        return self.rows.metadata()

    def may_read_in_threads(self) -> bool:
        """Return True: any thread of this process may send requests, but other processes can't."""
        return True

    def _request_options(self) -> dict[str, Any]:
        return {}

    def _answer(self, options: Mapping[str, Any], questions: Mapping[str, torch.Tensor]) -> Tensors:
        if options.get("constant") and not self.is_constant():
            raise RuntimeError(
                f"the rows of part {self.part} are or were updated, but another rank treats its rows as constant and "
                "keeps those that it read; pass DataLoader(window=0) on all ranks"
            )
        return {"rows": self.rows.read(self.book.offsets_of(questions["ids"]))}

    def __reduce__(self) -> Any:
        raise TypeError(
            "a PartitionedFeature can't be sent to another process, which would not be a rank; "
            "use the DataLoader with worker='thread'"
        )

    def __repr__(self) -> str:
        shape = torch.Size([self.count(), *self.size()])
        text = "rows" if self.dtype is None else dtype_and_shape(self.dtype, shape)
        return f"PartitionedFeature({text}, part {self.part} of {self.book.num_parts})"


def write_answers(answers: Iterable[tuple[torch.Tensor, Tensors]], out: torch.Tensor, positions: torch.Tensor) -> None:
    for asked, tensors in answers:
        rows = tensors["rows"]
        # The row of each id is written to that id's position.
        copy_rows(rows, torch.arange(len(rows), device="cpu"), out, gather_unchecked(positions, asked), distinct=True)


def served_name(domain: str, type_name: str | None, name: str) -> str:
    return json.dumps([domain, type_name, name])  # independent of the order of a rank's features
