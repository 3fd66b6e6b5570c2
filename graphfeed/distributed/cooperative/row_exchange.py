"""All-to-all fetch of the rows of nodes from the ranks that own them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from graphfeed import ops
from graphfeed.distributed.cooperative.step_exchange import StepExchange, Tag
from graphfeed.distributed.ranks.messages import Tensors
from graphfeed.ops.arguments import as_ids, check_ids, check_vector
from graphfeed.ops.rows import take_rows
from graphfeed.storage.graph import ByType, from_type_dict, to_type_dict


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

    def split(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.split(take_rows(rows, self.sent), self.sent_counts)

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
    steps: StepExchange
    tag: Tag
    """The step at which ids were traded."""

    def trade(self, rows: Sequence[tuple[str | None, torch.Tensor]], step: int) -> list[torch.Tensor]:
        """Send each rank the rows that it needs, and return those that this rank needs."""
        split = [self.routes[node_type].split(own) for node_type, own in rows]
        parts: list[Tensors] = [
            {str(number): part[rank] for number, part in enumerate(split)}
            for rank in range(self.steps.peers.world_size)
        ]
        # `step` differs from the numbers of all other steps of the mini-batch.
        arrived = self.steps.trade((*self.tag[:2], step), parts)
        return [
            self.routes[node_type].merge([part[str(number)] for part in arrived])
            for number, (node_type, _) in enumerate(rows)
        ]

    def count_rows(self) -> None:
        needed = sum(sum(route.sent_counts) for route in self.routes.values())
        owned = sum(map(len, to_type_dict(self.owned).values()))
        self.steps.peers.traffic.add(rows_needed=needed, rows_read=owned)


def plan_exchange(
    steps: StepExchange,
    tag: Tag,
    needed: ByType,
    num_nodes: int | dict[str, int],
    owners_of: Callable[[str | None, torch.Tensor], torch.Tensor],
    draws: str = "",
) -> RowExchange:
    """Tell the owners of some nodes that this rank needs them, and return what others need of it."""
    # `needed` may have duplicates; `owners_of` returns the rank that owns each id of a node type.
    given, sizes = check_needed(needed, num_nodes)
    none = next(iter(given.values()))[:0] if given else torch.empty(0, dtype=torch.int64, device="cpu")
    ids = {node_type: given.get(node_type, none).cpu() for node_type in sizes}
    world_size = steps.peers.world_size
    parts: list[dict[str, torch.Tensor]] = [{} for _ in range(world_size)]
    orders, received = {}, {}
    for number, (node_type, wanted) in enumerate(ids.items()):
        owners = owners_of(node_type, wanted).long()
        # Stable, so that what comes from a rank is in the order in which this one needs it.
        orders[node_type] = owners.argsort(stable=True)
        received[node_type] = torch.bincount(owners, minlength=world_size).tolist()
        for rank, part in enumerate(torch.split(take_rows(wanted, orders[node_type]), received[node_type])):
            parts[rank][str(number)] = part
    asked = steps.trade(tag, parts, draws)
    owned: dict[Any, torch.Tensor] = {}
    routes = {}
    for number, (node_type, size) in enumerate(sizes.items()):
        pieces = [part[str(number)] for part in asked]
        wanted = torch.cat(pieces)
        # Several ranks may need a node, which its owner samples once; `sent` has its place for each of them.
        owned[node_type], _, sent = ops.compact(wanted[:0], wanted, num_nodes=size)
        routes[node_type] = Route(sent.long(), list(map(len, pieces)), orders[node_type], received[node_type])
    return RowExchange(from_type_dict(owned), routes, steps, tag)


def check_needed(
    needed: ByType, num_nodes: int | dict[str, int]
) -> tuple[Mapping[str | None, torch.Tensor], Mapping[str | None, int]]:
    """Return nodes and the number of nodes, both by type, or say what is wrong, on the rank that needs them."""
    if isinstance(needed, dict) != isinstance(num_nodes, dict):
        raise TypeError(
            f"seeds must be {'a dict by node type' if isinstance(num_nodes, dict) else 'a tensor of node ids'}, for "
            f"the graph has {f'types {list(num_nodes)}' if isinstance(num_nodes, dict) else 'one type'}, but are a "
            f"{type(needed).__name__}; {'give a HeteroItemSet' if isinstance(num_nodes, dict) else 'give an ItemSet'}"
        )
    sizes: dict[str | None, int] = to_type_dict(num_nodes)
    given = {}
    for node_type, own in to_type_dict(needed).items():
        if node_type not in sizes:
            raise KeyError(f"seeds have node type {node_type!r}, but the graph has {list(sizes)}")
        name = f"seeds of type {node_type!r}" if node_type is not None else "seeds"
        given[node_type] = as_ids(name, own)
        check_vector(name, given[node_type])
        check_ids(name, given[node_type], sizes[node_type])
    return given, sizes
