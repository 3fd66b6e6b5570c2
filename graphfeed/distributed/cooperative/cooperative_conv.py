"""Exchange of node embeddings between the ranks of a joint mini-batch, inside a model."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import distributed
from torch.autograd.function import once_differentiable

from graphfeed.distributed.cooperative.exchange import Route, RowExchange
from graphfeed.storage.graph import ByType, from_type_dict, to_type_dict

Joint: TypeAlias = Any
"""A hop or a mini-batch; without an `exchange`, rows are returned unchanged."""


class CooperativeConv(torch.nn.Module):
    """Sends embeddings of nodes from the ranks that own them to the ranks that need them, and gradients back.

    With `cooperative=True` on the sampler, a rank computes only the rows of its own nodes. Each layer but the first
    needs those of its hop's sources, and the loss those of the rank's own seeds. All ranks must call the module
    together, in the default process group. If a mini-batch is not joint, rows are returned unchanged. The first layer
    needs it only if the fetcher had no `cooperative=True`; its input is then the rows of `hop.exchange.owned`.

    Example::

        exchange = CooperativeConv()
        rows = minibatch.node_features["feat"]
        for number, (layer, hop) in enumerate(zip(layers, minibatch.sampled_subgraphs)):
            rows = layer(hop, exchange(hop, rows) if number else rows)  # one row per column
        loss = loss_of(exchange(minibatch, rows), minibatch.labels)
    """

    def forward(self, subgraph: Joint, x: ByType) -> ByType:
        """Return the rows of a hop's sources, or of a mini-batch's seeds.

        Args:
            subgraph: The hop, or the mini-batch.
            x: The rows of the columns of the previous hop, or of the innermost hop; by node type if the graph has
                types, with the same types on all ranks.
        """
        return CooperativeConvFunction.apply(subgraph, x)


class Exchanged(torch.autograd.Function):
    """Sends rows of all node types from the ranks that own them to those that need them."""

    # One function for all types, so that backward() takes part in the exchange on all ranks, whichever types they used.
    @staticmethod
    def forward(ctx: Any, routes: Sequence[Route], *rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.routes, ctx.counts = routes, [len(own) for own in rows]
        results = []
        for route, own in zip(routes, rows, strict=True):
            arrived = trade(own[route.sent.to(own.device)], route.sent_counts, route.received_counts)
            results.append(route.merge([arrived]))
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        sums = []
        for route, count, gradient in zip(ctx.routes, ctx.counts, gradients, strict=True):
            given = gradient[route.positions.to(gradient.device)]
            back = trade(given, route.received_counts, route.sent_counts)
            # The gradient of a row that several ranks need is the sum of theirs.
            own = back.new_zeros(count, *back.shape[1:])
            sums.append(own.index_add_(0, route.sent.to(back.device), back))
        return None, *sums


class CooperativeConvFunction:
    """`CooperativeConv` in the form of a function."""

    @staticmethod
    def apply(subgraph: Joint, tensor: ByType) -> ByType:
        """Return the rows of a hop's sources, or of a mini-batch's seeds."""
        exchange: RowExchange | None = getattr(subgraph, "exchange", None)
        if exchange is None:
            return tensor
        # All ranks exchange the types in the same order.
        given = sorted(to_type_dict(tensor).items())
        routes = [exchange.routes[node_type] for node_type, _ in given]
        arrived = Exchanged.apply(routes, *(rows for _, rows in given))  # type: ignore[no-untyped-call]
        return from_type_dict(dict(zip(dict(given), arrived, strict=True)))  # type: ignore[no-any-return]


def trade(rows: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:
    # `sent` and `received` are the numbers of rows to and from each rank.
    arrived = rows.new_empty(sum(received), *rows.shape[1:])
    distributed.all_to_all_single(arrived, rows.contiguous(), list(received), list(sent))
    return arrived
