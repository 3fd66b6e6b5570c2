"""The rows of a feature on all ranks of a machine: each maps those of the others, without copies or messages."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch

from graphfeed.distributed.one_machine.memory_scope import open_handle, share, write_handle
from graphfeed.distributed.part_book import PartBook
from graphfeed.distributed.ranks.messages import Tensors
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.storage import Feature, TorchBasedFeature
from graphfeed.storage.features import dtype_and_shape, row_type
from graphfeed.storage.memory import SharedBlock

HANDLE = "handle"


class SharedRows:
    """The rows of a feature that this rank can read from memory, by the rank that owns them."""

    def __init__(self, rows: Feature, book: PartBook, peers: Peers, name: str = "", identity: str = "") -> None:
        self.rows = rows
        self.book = book
        self.peers = peers
        self._opening = threading.Lock()
        self._moving = threading.Lock()
        self._handle: dict[str, torch.Tensor] = {}
        self._block: SharedBlock | None = None
        self._others: dict[int, torch.Tensor] | None = None
        self._name = peers.serve(f"rows {name}".rstrip(), self._answer)
        shape = dtype_and_shape(row_type(rows), torch.Size([book.num_ids, *rows.size()]))
        said = {"rows": shape, "assignment": int(book.checksum), "identity": identity}
        self.peers.agreement.state_part(self._name, said)

    def by_rank(self) -> Mapping[int, torch.Tensor]:
        self.peers.agreement.check_part(self._name)
        # The first call waits for the ranks here.
        if self._others is None:
            with self._opening:
                if self._others is None:
                    self._others = self._open()
        own = self._tensor()
        return self._others if own is None else {**self._others, self.peers.rank: own}

    def _tensor(self) -> torch.Tensor | None:
        in_memory = isinstance(self.rows, TorchBasedFeature) and self.rows.may_read_in_threads()
        return self.rows.read() if in_memory else None

    def _open(self) -> dict[int, torch.Tensor]:
        """Map the rows of the other ranks here; ranks whose rows are not in memory are left out."""
        others = [rank for rank in self.peers.ranks_here() if rank != self.peers.rank]
        by_rank = {}
        for rank, future in self.peers.ask(self._name, {}, {rank: {} for rank in others}).items():
            answer = self.peers.wait(rank, future)
            if HANDLE not in answer:
                continue
            with suppress(OSError):  # the system forbids it
                (by_rank[rank],) = open_handle(answer[HANDLE])[0]
        return by_rank

    def _answer(self, options: Mapping[str, Any], questions: Tensors) -> Tensors:  # noqa: ARG002
        """Return the handle of this rank's rows to another rank; nothing if they are not in memory."""
        with self._moving:
            own = self._tensor()
            if own is not None and not self._handle:
                # Rows move to shared memory when another rank first asks for them. Those in a file stay there.
                handle, self._block = share(own)
                if self._block is not None:
                    self.rows.update(self._block.tensors[0])
                self._handle = {HANDLE: write_handle(handle)}
        return self._handle
