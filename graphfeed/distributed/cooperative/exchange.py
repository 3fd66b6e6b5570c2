"""All-to-all exchanges between ranks, of tensors and of rows of nodes, matched by the number of the step."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from graphfeed import ops
from graphfeed.distributed.ranks.peers import Peers
from graphfeed.distributed.ranks.transport.messages import Tensors
from graphfeed.ops.arguments import as_ids, check_ids, check_vector
from graphfeed.ops.process import Changes
from graphfeed.ops.rows import gather_unchecked
from graphfeed.storage.graph import ByType, from_type_dict, to_type_dict

Tag: TypeAlias = tuple[int, int, int]
"""Identity of a step: the run of the loader, the mini-batch, and the step within the mini-batch."""

CHECK_SECONDS = 0.2
"""Interval at which waiting threads check whether a rank was lost."""

SAME_LOADERS = "all ranks must create their loaders in the same order, and iterate over them equally often and far"

SAME_SEED = "give the DataLoader of all ranks the same seed, and load the same state"


class Exchange:
    """An all-to-all of tensors per step: each rank sends one piece to every other rank, and receives theirs."""

    # Thread-safe. Names have running numbers, so all ranks must create their graphs and loaders in the same order.
    # Errors call a step `what`, and end with `advice`.
    def __init__(
        self,
        peers: Peers,
        name: str,
        what: str = "joint mini-batch",
        advice: tuple[str, str] = (SAME_LOADERS, SAME_SEED),
    ) -> None:
        self.peers, self._what, self._advice = peers, what, advice
        self._given: dict[Tag, dict[int, tuple[str, Tensors]]] = {}
        self._runs = [0] * peers.world_size  # the first run that each rank has not left, as known here
        self._changes = Changes()
        self._name = peers.serve(name, self._receive)

    def trade(self, tag: Tag, split: Sequence[Sequence[torch.Tensor]], draws: str = "") -> list[list[torch.Tensor]]:
        """Send each rank its piece of each tensor, and return the pieces of all ranks, including this one.

        Argument and result are lists over tensors of lists over ranks. Waits for all ranks.
        """
        own, ranks = self.peers.rank, range(self.peers.world_size)
        self._check([], tag)
        parts: dict[int, Tensors] = {
            rank: {str(number): part[rank] for number, part in enumerate(split)} for rank in ranks
        }
        answers = self.peers.gather(self._name, {"tag": tag, "rank": own, "draws": draws}, parts)
        next(answers)  # the response of this rank, which stores its own piece
        begin = time.monotonic()

        def take() -> dict[int, tuple[str, Tensors]] | None:
            missing = [rank for rank in ranks if rank not in self._given.get(tag, {})]
            if missing:
                self._check(missing, tag, time.monotonic() - begin)
            return None if missing else self._given.pop(tag)

        given_by = self._changes.wait_for(take, every=CHECK_SECONDS) or {}
        list(answers)  # later messages, for example that this rank leaves, must not overtake these
        for rank, (said, _) in given_by.items():
            # Draws depend on it: with different seeds, mini-batches would look plausible but be wrong.
            if said != draws:
                raise ValueError(
                    f"rank {own} begins {self._what} {tag[1]} with {draws}, but rank {rank} with {said}; "
                    f"{self._advice[1]}"
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
        """Send node ids to their owners, and return which rows this rank then sends and receives.

        `needed` may contain duplicates. `owners_of` returns the rank that owns each id of a node type.
        """
        split, orders, counts = [], [], []
        for node_type, ids in check_needed(needed, num_nodes).items():
            owners = owners_of(node_type, ids).long()
            # Stable, so that the rows from each rank arrive in the order of `needed`.
            orders.append(owners.argsort(stable=True))
            counts.append(torch.bincount(owners, minlength=self.peers.world_size).tolist())
            split.append(torch.split(gather_unchecked(ids, orders[-1]), counts[-1]))
        asked = self.trade(tag, split, draws)
        owned: dict[Any, torch.Tensor] = {}
        routes: dict[str | None, Route] = {}
        sizes = to_type_dict(num_nodes).items()
        for (node_type, size), pieces, order, received in zip(sizes, asked, orders, counts, strict=True):
            wanted = torch.cat(pieces)
            # Several ranks may need a node, which its owner samples once; `sent` has its position for each of them.
            owned[node_type], _, sent = ops.compact(wanted[:0], wanted, num_nodes=size)
            routes[node_type] = Route(sent.long(), list(map(len, pieces)), order, received)
        return RowExchange(from_type_dict(owned), routes, self, tag)

    def leave(self, run: int) -> None:
        """Announce that this rank takes part in no further step of a run, so that no rank waits for it."""
        said = {"tag": (run + 1, 0, 0), "rank": self.peers.rank}
        # Ranks that have closed their peers need no notice.
        with suppress(ConnectionError, RuntimeError):
            self.peers.gather(self._name, said)
        self._receive(said, {})  # wakes the waiting threads of this rank

    def _check(self, missing: Sequence[int], tag: Tag, waited: float = 0.0) -> None:
        """Raise if waiting is pointless."""
        self.peers.check()
        left = [rank for rank in (self.peers.rank, *missing) if self._runs[rank] > tag[0]]
        if left:
            raise RuntimeError(f"ranks {left} have left this epoch, or run two epochs of a loader at the same time")
        ended = sorted(set(missing).intersection(self.peers.leaving))
        if ended:
            raise RuntimeError(f"ranks {ended} have ended before {self._what} {tag[1]}; {self._advice[0]}")
        limit = self.peers.start_timeout + self.peers.timeout
        if waited > limit:
            raise TimeoutError(
                f"ranks {missing} did not begin {self._what} {tag[1]} for {limit:g} s; {self._advice[0]}"
            )

    def _receive(self, options: Mapping[str, Any], part: Tensors) -> Tensors:
        """Store a rank's piece of a step; without `draws`, record that it has left all runs before the step's."""
        rank, (run, index, step) = options["rank"], options["tag"]
        with self._changes.lock:
            # A rank that begins a run has left those before it, too.
            self._runs[rank] = max(self._runs[rank], run)
            # Steps of runs that all ranks have left are no longer needed.
            oldest = min(self._runs)
            self._given = {tag: parts for tag, parts in self._given.items() if tag[0] >= oldest}
            if "draws" in options and run >= oldest:
                self._given.setdefault((run, index, step), {})[rank] = options["draws"], part
        self._changes.notify_all()
        return {}


@dataclass(frozen=True)
class Route:
    """The rows of one node type that this rank sends and receives."""

    sent: torch.Tensor
    """Positions of the rows to send among those that this rank owns, grouped by receiver."""
    sent_counts: list[int]
    """Number of rows for each rank."""
    positions: torch.Tensor
    """Position of each received row in the result, grouped by sender."""
    received_counts: list[int]
    """Number of rows from each rank."""

    def merge(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        arrived = torch.cat(list(parts))
        out = torch.empty_like(arrived)
        out[self.positions.to(arrived.device)] = arrived
        return out


@dataclass(frozen=True)
class RowExchange:
    """A planned all-to-all of rows: the nodes of this rank that any rank needs, and the ranks that need them."""

    owned: ByType
    """Distinct ids of the nodes whose rows this rank computes; by node type if the graph has types."""
    routes: Mapping[str | None, Route]
    """By node type, which is None in a graph without types."""
    exchange: Exchange
    tag: Tag
    """The step in which the ids were exchanged."""

    def trade(self, rows: Sequence[tuple[str | None, torch.Tensor]], step: int) -> list[torch.Tensor]:
        """Send each rank the rows that it needs, and return those that this rank needs.

        `step` must differ from the numbers of all other steps of the mini-batch.
        """
        routes = [self.routes[node_type] for node_type, _ in rows]
        split = [
            torch.split(gather_unchecked(own, route.sent), route.sent_counts)
            for route, (_, own) in zip(routes, rows, strict=True)
        ]
        arrived = self.exchange.trade((*self.tag[:2], step), split)
        return [route.merge(parts) for route, parts in zip(routes, arrived, strict=True)]

    def count_rows(self) -> None:
        needed = sum(sum(route.sent_counts) for route in self.routes.values())
        owned = sum(map(len, to_type_dict(self.owned).values()))
        self.exchange.peers.traffic.add(rows_needed=needed, rows_read=owned)


def check_needed(needed: ByType, num_nodes: int | dict[str, int]) -> dict[str | None, torch.Tensor]:
    """Return the ids of each node type on the CPU; raise on the rank that requests them if they are not valid."""
    if isinstance(needed, dict) != isinstance(num_nodes, dict):
        raise TypeError(
            f"seeds must be {'a dict by node type' if isinstance(num_nodes, dict) else 'a tensor of node ids'}, as "
            f"the graph has {f'types {list(num_nodes)}' if isinstance(num_nodes, dict) else 'one type'}, but are a "
            f"{type(needed).__name__}; {'use a HeteroItemSet' if isinstance(num_nodes, dict) else 'use an ItemSet'}"
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
