"""A feature in parts: each rank reads the rows of its part from memory, and the others from their owners."""

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from graphfeed import ops
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.partitioned_graph import check_ranks
from graphfeed.distributed.ranks.exchange import ask_owners
from graphfeed.distributed.ranks.messages import Tensors
from graphfeed.distributed.ranks.peers import Peers, shared_peers
from graphfeed.ops.arguments import as_ids, check_ids, check_vector, checked
from graphfeed.ops.memory import buffers
from graphfeed.ops.rows import copy_rows, gather_parts, take_rows
from graphfeed.storage import DeferredRead, Feature, TorchBasedFeature
from graphfeed.storage.features import ReadsAhead, RemoteFeature, Spans, dtype_and_shape, row_type


@dataclass(frozen=True, eq=False)
class HaloIds:
    """The ids of one type whose rows a part has copies of, for all features of the type."""

    ids: torch.Tensor
    """int64, ascending."""
    num_ids: int
    """The number of ids on all ranks."""

    def check(self) -> None:
        if len(self.ids) and not bool((self.ids.diff() > 0).all()):
            raise ValueError("the ids of copied rows must ascend, but don't")
        if len(self.ids) and not 0 <= int(self.ids[0]) <= int(self.ids[-1]) < self.num_ids:
            raise ValueError(
                f"the ids of copied rows must lie in 0 .. {self.num_ids - 1}, but go from {self.ids[0]} to "
                f"{self.ids[-1]}"
            )

    @cached_property
    def offsets(self) -> torch.Tensor:
        """The offset of each id among those copied, or -1: 4 bytes per id of all ranks."""
        self.check()
        # With 1 million of 20 million ids copied, this finds 150 thousand ids in 1 ms; a binary search takes 30.
        offsets = torch.full((self.num_ids,), -1, dtype=torch.int32 if len(self.ids) < 1 << 31 else torch.int64)
        offsets[self.ids] = torch.arange(len(self.ids), dtype=offsets.dtype)
        return offsets


@dataclass(frozen=True, eq=False)
class HaloRows:
    """Copies of rows of other parts, for one feature."""

    # They must stay as they were copied: an update of the part's own rows does not reach the copies.
    of: HaloIds
    rows: torch.Tensor
    """The copies, in the order of the ids."""
    source: torch.Tensor
    """The rows of the part itself, of which other parts have copies."""

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.of.ids) or self.rows.shape[1:] != self.source.shape[1:]:
            raise ValueError(
                f"copied rows must be {len(self.of.ids)} of shape {tuple(self.source.shape[1:])}, one per id, but have "
                f"shape {tuple(self.rows.shape)}"
            )
        if self.rows.dtype != self.source.dtype:
            raise ValueError(f"copied rows must be {self.source.dtype} as those of the part, but are {self.rows.dtype}")

    def find(self, ids: torch.Tensor) -> torch.Tensor:
        return take_rows(self.of.offsets, ids)  # the ids are not checked


BYTES_AHEAD = 1 << 23
"""How many bytes of rows a question asks for that is asked ahead: enough that questions take little of the time."""
READERS = 2
"""How many of these questions are asked at the same time, so that one is answered as the answer to another is read."""


class PartitionedFeature(RemoteFeature, ReadsAhead):
    """Reads rows by global id, local or remote. Each id of a read is asked for once, and each rank at most once.

    With `cpu_cached_feature` around it, rows of other machines that are often asked for are kept here; those of this
    rank's part take none of its room, if they are in memory.

    With `DataLoader(window=32)`, rows are asked for that up to so many mini-batches need, each row once, while earlier
    ones are used, and what the next ones need too stays here, within `memory_limit`. No update of a row that was read
    so is seen later in the epoch, nor in later ones.

    Where parts are stored with copies of other parts' rows (`write_partition(halo_features=...)`), these are read
    rather than asked for. Rows with copies elsewhere must stay as they are: an update does not reach the copies.

    Args:
        rows: The rows of the part that this rank holds, in the order of their ids: a tensor, or any feature.
        book: Which part owns each id. With P parts and R ranks, rank `i` holds part `i // (R / P)`.
        peers: The ranks; by default, those of the default process group, shared with other graphs and features.
        name: What all ranks call the feature. Ranks must make features of the same name in the same order.
        halo: Copies of rows that other ranks own, as `StoredPart.halo` has them.
        identity: That of the partition (`GraphPart.identity`), which all ranks must have.

    Raises:
        ValueError: The number of rows is not that of the part's ids, or that of the ranks no multiple of that of the
            parts.

    Example:
        >>> rows = torch.tensor([[1.0], [2.0]])  # a single rank owns all of them
        >>> PartitionedFeature(rows, PartBook.from_bounds([0, 2])).read(torch.tensor([1, 0])).tolist()
        [[2.0], [1.0]]
    """

    waits_for = "other ranks"

    @checked
    def __init__(
        self,
        rows: torch.Tensor | Feature,
        book: PartBook,
        peers: Peers | None = None,
        name: str = "",
        halo: HaloRows | None = None,
        identity: str = "",
    ) -> None:
        self.rows = rows if isinstance(rows, Feature) else TorchBasedFeature(rows)
        self.book = book
        self.peers = shared_peers() if peers is None else peers
        self.part = check_ranks(self.book, self.peers)
        own = book.ids_of(self.part).numel()
        if self.rows.count() != own:
            raise ValueError(f"rows must be the {own} of part {self.part}, but are {self.rows.count()}")
        self._halo = halo if halo is not None and len(halo.rows) else None
        self._name = self.peers.serve(f"feature {name}".rstrip(), self._answer)
        shape = dtype_and_shape(row_type(self.rows), torch.Size([book.num_ids, *self.rows.size()]))
        said = {"rows": shape, "assignment": int(book.checksum), "identity": identity}
        self.peers.agreement.state_part(self._name, said)

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows at `ids`, shape (len(ids), ...); all rows, from all ranks, if None.

        Raises:
            IndexError: An id below 0 or beyond the rows.
            RankLostError: Another rank ended or froze.
        """
        return self._begin(torch.arange(self.book.num_ids) if ids is None else ids)()

    def read_async(self, ids: torch.Tensor) -> Generator[DeferredRead, None, None]:
        """Yield once, after the requests were sent to the owners; what is yielded waits for their answers."""
        yield DeferredRead(self._begin(ids))

    def split_local(self, ids: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor], None]]:
        """Return the positions of the ids whose rows are remote, and what reads the local ones from memory."""
        located = self._locate(ids.cpu())
        return located.remote, located.write

    def _begin(self, ids: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Ask other ranks for the rows that this one can't read; return what reads the rest and waits."""
        ids = as_ids("ids", ids)
        check_vector("ids", ids)
        check_ids("ids", ids, self.book.num_ids, IndexError)
        ids = ids.cpu()
        self.peers.agreement.check_part(self._name)
        if self.book.num_parts == 1:
            return partial(self.rows.read, ids)
        # Rows cross the network once, however often a mini-batch asks for them.
        unique, _, inverse = ops.compact(ids[:0], ids, num_nodes=self.book.num_ids)
        wait = self._ask(unique)
        return wait if unique.numel() == ids.numel() else lambda: take_rows(wait(), inverse)

    def _locate(self, ids: torch.Tensor) -> "Located":
        """Return where the rows of some ids are."""
        in_memory = isinstance(self.rows, TorchBasedFeature) and self.rows.may_read_in_threads()
        tensors: list[torch.Tensor | None] = [None] * self.book.num_parts
        tensors[self.part] = self.rows.read() if in_memory else None
        owners, offsets = self.book.locate(ids)
        is_remote = np.array([tensor is None for tensor in tensors])
        remote = torch.from_numpy(np.flatnonzero(is_remote[owners.numpy()]))
        if self._halo is not None:
            rows = self._halo.find(take_rows(ids, remote))
            copied, remote = remote[rows >= 0], remote[rows < 0]
            # Copies are one more tensor to gather from, behind those of the parts. Not in place, as the book may keep
            # what it returned.
            owners, offsets = owners.to(torch.int32, copy=True), offsets.clone()
            owners[copied] = len(tensors)
            offsets[copied] = rows[rows >= 0].to(offsets.dtype)
            tensors.append(self._halo.rows)
        return Located(tensors, owners, offsets, remote)

    def _gather(self, located: "Located") -> torch.Tensor:
        # Rows that are elsewhere are filled in later.
        out = buffers.empty((located.offsets.numel(), *self.size()), row_type(self.rows))
        if any(tensor is not None for tensor in located.tensors):
            located.write(out)
        return out

    def _ask(self, ids: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Ask for rows, each once; return what reads those in memory and waits."""
        located = self._locate(ids)
        asked = take_rows(ids, located.remote)
        answers = ask_owners(self.peers, self._name, self._answer, self.book, asked, {}, {"ids": asked})

        def wait() -> torch.Tensor:
            # Rows in memory are read while the answers are on their way.
            out = self._gather(located)
            write_answers(answers, out, located.remote)
            return out

        return wait

    def slow_source(self) -> ReadsAhead | None:
        """Return this feature, unless there is a single part."""
        return None if self.dtype is None or self.book.num_parts == 1 else self

    def begin_reading(self, ids: torch.Tensor, out: torch.Tensor, positions: torch.Tensor) -> list[Future[Spans]]:
        """Let threads ask the owners for many rows, as `ReadsAhead.begin_reading` says."""
        rows = max(1, BYTES_AHEAD // max(1, self.row_bytes))
        parts = zip(torch.split(ids, rows), torch.split(positions, rows), strict=True)
        return [self._readers.submit(self._read_into, out, *part) for part in parts]

    def join(self, futures: Sequence[Future[Any]]) -> None:
        """Wait until parts are read; each question has a time limit of its own, and raises as `read` does."""
        for future in futures:
            future.result()

    def check_unchanged(self) -> None:
        """Trust that owners have updated no rows that are read ahead, as the class says."""

    @cached_property
    def _readers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(READERS, "graphfeed-rows")

    def _read_into(self, out: torch.Tensor, ids: torch.Tensor, positions: torch.Tensor) -> Spans:
        answers = list(ask_owners(self.peers, self._name, self._answer, self.book, ids, {}, {"ids": ids}))
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
        """Raise: each rank updates the rows of its part, by `rows.update`, with offsets among these.

        Where several ranks hold a part, each of them does.
        """
        raise NotImplementedError(
            "a feature in parts is updated by the owners of its rows: call feature.rows.update(value, offsets) on the "
            "rank that owns them, with offsets from feature.book.offsets_of(ids)"
        )

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of this rank's rows."""
        return self.rows.metadata()

    def may_read_in_threads(self) -> bool:
        """Return True: threads ask other ranks as well as the main one does; other processes can't."""
        return True

    def _answer(self, options: Mapping[str, Any], questions: Mapping[str, torch.Tensor]) -> Tensors:  # noqa: ARG002
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


class Located(NamedTuple):
    """The owners and the offsets of the rows of some ids."""

    tensors: list[torch.Tensor | None]
    """The rows of each part, None for those that are asked for; behind them perhaps the copies of other parts' rows."""
    owners: torch.Tensor
    """Which of the tensors has the row of each id; for remote ones, the part."""
    offsets: torch.Tensor
    """The position of each row there."""
    remote: torch.Tensor
    """The positions of the ids whose rows are in none of the tensors."""

    def write(self, out: torch.Tensor) -> None:
        gather_parts(self.tensors, self.owners, self.offsets, out)


def write_answers(answers: Iterable[tuple[torch.Tensor, Tensors]], out: torch.Tensor, positions: torch.Tensor) -> None:
    for asked, tensors in answers:
        rows = tensors["rows"]
        # The row of each question goes to the question's own position.
        copy_rows(rows, torch.arange(len(rows)), out, take_rows(positions, asked), distinct=True)


def name_of(domain: str, type_name: str | None, name: str) -> str:
    return json.dumps([domain, type_name, name])  # whichever order of features each rank has
