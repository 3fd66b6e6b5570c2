"""All-to-all between ranks, of tensors and of the rows of nodes, matched by the number of the step."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from graphfeed import ops
from graphfeed.distributed.ranks.messages import Tensors
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.ops.arguments import as_ids, check_ids, check_vector
from graphfeed.ops.process import Changes
from graphfeed.ops.rows import take_rows
from graphfeed.storage.graph import ByType, from_type_dict, to_type_dict

Tag: TypeAlias = tuple[int, int, int]
"""Names a step: the run of the loader, the mini-batch, and the step of that mini-batch."""

CHECK_SECONDS = 0.2
"""How often a thread that waits looks whether a rank was lost."""

SAME = "all ranks must make their loaders in the same order, and iterate them as often and as far"


class Exchange:
    """An all-to-all of tensors per step: each rank sends every other one its part, and receives theirs."""

    # Several threads may be at several steps at the same time. All ranks give the exchange the same name.
    def __init__(self, peers: Peers, name: str) -> None:
        self.peers = peers
        self._given: dict[Tag, dict[int, tuple[str, Tensors]]] = {}
        self._runs = [0] * peers.world_size  # the first one that each rank has not left, as far as this one knows
        self._changes = Changes()
        self._name = peers.serve(name, self._receive)

    def trade(self, tag: Tag, split: Sequence[Sequence[torch.Tensor]], draws: str = "") -> list[list[torch.Tensor]]:
        """Send each rank its part of each tensor, and return what each rank sent, this one included.

        Both are lists over tensors of lists over ranks. This waits for all ranks.
        """
        own, ranks = self.peers.rank, range(self.peers.world_size)
        self._check([], tag)
        parts: dict[int, Tensors] = {
            rank: {str(number): part[rank] for number, part in enumerate(split)} for rank in ranks
        }
        answers = self.peers.gather(self._name, {"tag": tag, "rank": own, "draws": draws}, parts)
        next(answers)  # this rank's own, by which its part is known here
        begin = time.monotonic()

        def take() -> dict[int, tuple[str, Tensors]] | None:
            missing = [rank for rank in ranks if rank not in self._given.get(tag, {})]
            if missing:
                self._check(missing, tag, time.monotonic() - begin)
            return None if missing else self._given.pop(tag)

        given_by = self._changes.wait_for(take, every=CHECK_SECONDS) or {}
        list(answers)  # what is sent later, such as that this rank leaves, must not arrive before
        for rank, (said, _) in given_by.items():
            # What the draws depend on: ranks that differ would make a mini-batch that looks well and is wrong.
            if said != draws:
                raise ValueError(
                    f"rank {own} makes joint mini-batch {tag[1]} with {draws}, but rank {rank} with {said}; give the "
                    "DataLoader of all ranks the same seed, and load the same state"
                )
        return [[given_by[rank][1][str(number)] for rank in ranks] for number in range(len(split))]

    def plan(
        self,
        tag: Tag,
        needed: ByType,
        num_nodes: int | dict[str, int],
        owners_of: Callable[[str | None, torch.Tensor], torch.Tensor],
        draws: str = "",
    ) -> "RowExchange":
        """Send the owners of some nodes their ids, and return which rows this rank then sends and receives.

        `needed` may have duplicates. `owners_of` returns the rank that owns each id of a node type.
        """
        split, orders, counts = [], [], []
        for node_type, ids in check_needed(needed, num_nodes).items():
            owners = owners_of(node_type, ids).long()
            # Stable, so that what comes from a rank is in the order in which this one needs it.
            orders.append(owners.argsort(stable=True))
            counts.append(torch.bincount(owners, minlength=self.peers.world_size).tolist())
            split.append(torch.split(take_rows(ids, orders[-1]), counts[-1]))
        asked = self.trade(tag, split, draws)
        owned: dict[Any, torch.Tensor] = {}
        routes: dict[str | None, Route] = {}
        sizes = to_type_dict(num_nodes).items()
        for (node_type, size), pieces, order, received in zip(sizes, asked, orders, counts, strict=True):
            wanted = torch.cat(pieces)
            # Several ranks may need a node, which its owner samples once; `sent` has its place for each of them.
            owned[node_type], _, sent = ops.compact(wanted[:0], wanted, num_nodes=size)
            routes[node_type] = Route(sent.long(), list(map(len, pieces)), order, received)
        return RowExchange(from_type_dict(owned), routes, self, tag)

    def leave(self, run: int) -> None:
        """Tell all ranks that this one comes to no further step of a run, so that none waits for it."""
        said = {"tag": (run + 1, 0, 0), "rank": self.peers.rank}
        # Ranks that have closed their peers need not be told.
        with suppress(ConnectionError, RuntimeError):
            self.peers.gather(self._name, said)
        self._receive(said, {})  # which wakes the threads of this one

    def _check(self, missing: Sequence[int], tag: Tag, waited: float = 0.0) -> None:
        """Raise if there is nothing more to wait for."""
        self.peers.check()
        left = [rank for rank in (self.peers.rank, *missing) if self._runs[rank] > tag[0]]
        if left:
            raise RuntimeError(f"ranks {left} have left this epoch, or run two epochs of a loader at the same time")
        ended = sorted(set(missing).intersection(self.peers.leaving))
        if ended:
            raise RuntimeError(f"ranks {ended} have ended before joint mini-batch {tag[1]}; {SAME}")
        limit = self.peers.start_timeout + self.peers.timeout
        if waited > limit:
            raise TimeoutError(f"ranks {missing} did not come to joint mini-batch {tag[1]} for {limit:g} s; {SAME}")

    def _receive(self, options: Mapping[str, Any], part: Tensors) -> Tensors:
        """Keep a rank's part of a step, or, without `draws`, that it has left the runs before the step's."""
        rank, (run, index, step) = options["rank"], options["tag"]
        with self._changes.lock:
            # A rank that begins another run has left those before it, too.
            self._runs[rank] = max(self._runs[rank], run)
            # No rank comes to the steps of runs that all have left.
            oldest = min(self._runs)
            self._given = {tag: parts for tag, parts in self._given.items() if tag[0] >= oldest}
            if "draws" in options and run >= oldest:
                self._given.setdefault((run, index, step), {})[rank] = options["draws"], part
        self._changes.notify_all()
        return {}


@dataclass(frozen=True)
class Route:
    """Which rows of one node type each rank sends and receives."""

    sent: torch.Tensor
    """The positions of the rows to send among those that this rank owns: those for rank 0 first."""
    sent_counts: list[int]
    """How many of them each rank gets."""
    positions: torch.Tensor
    """Where each row that arrives goes: those from rank 0 first."""
    received_counts: list[int]
    """How many of them each rank sends."""

    def merge(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        arrived = torch.cat(list(parts))
        out = torch.empty_like(arrived)
        out[self.positions.to(arrived.device)] = arrived
        return out


@dataclass(frozen=True)
class RowExchange:
    """A planned all-to-all of rows: the nodes of this rank that any rank needs, and which ranks need each of them."""

    owned: ByType
    """The ids of the nodes whose rows this rank makes, each of them once; by node type if the graph has types."""
    routes: Mapping[str | None, Route]
    """By node type, which is None in a graph without types."""
    exchange: Exchange
    tag: Tag
    """The step at which ids were traded."""

    def trade(self, rows: Sequence[tuple[str | None, torch.Tensor]], step: int) -> list[torch.Tensor]:
        """Send each rank the rows that it needs, and return those that this rank needs.

        `step` differs from the numbers of all other steps of the mini-batch.
        """
        routes = [self.routes[node_type] for node_type, _ in rows]
        split = [
            torch.split(take_rows(own, route.sent), route.sent_counts)
            for route, (_, own) in zip(routes, rows, strict=True)
        ]
        arrived = self.exchange.trade((*self.tag[:2], step), split)
        return [route.merge(parts) for route, parts in zip(routes, arrived, strict=True)]

    def count_rows(self) -> None:
        needed = sum(sum(route.sent_counts) for route in self.routes.values())
        owned = sum(map(len, to_type_dict(self.owned).values()))
        self.exchange.peers.traffic.add(rows_needed=needed, rows_read=owned)


def check_needed(needed: ByType, num_nodes: int | dict[str, int]) -> dict[str | None, torch.Tensor]:
    """Return the ids of each node type, on the CPU, or raise on the rank that needs them if they are not nodes."""
    if isinstance(needed, dict) != isinstance(num_nodes, dict):
        raise TypeError(
            f"seeds must be {'a dict by node type' if isinstance(num_nodes, dict) else 'a tensor of node ids'}, for "
            f"the graph has {f'types {list(num_nodes)}' if isinstance(num_nodes, dict) else 'one type'}, but are a "
            f"{type(needed).__name__}; {'give a HeteroItemSet' if isinstance(num_nodes, dict) else 'give an ItemSet'}"
        )
    sizes: dict[str | None, int] = to_type_dict(num_nodes)
    given: dict[str | None, torch.Tensor] = {}
    for node_type, own in to_type_dict(needed).items():
        if node_type not in sizes:
            raise KeyError(f"seeds have node type {node_type!r}, but the graph has {list(sizes)}")
        name = f"seeds of type {node_type!r}" if node_type is not None else "seeds"
        given[node_type] = as_ids(name, own)
        check_vector(name, given[node_type])
        check_ids(name, given[node_type], sizes[node_type])
    none = next(iter(given.values()))[:0] if given else torch.empty(0, dtype=torch.int64, device="cpu")
    return {node_type: given.get(node_type, none).cpu() for node_type in sizes}
