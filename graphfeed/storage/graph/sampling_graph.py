"""Base class of sampling graphs: all operations of samplers, implemented with one-hop sampling."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch

from graphfeed.ops import MASK, draw_key
from graphfeed.ops.arguments import (
    LARGEST,
    as_ids,
    brief,
    check_count,
    check_ids,
    check_vector,
    checked,
    rename_overrides,
)
from graphfeed.ops.sampling import JoinedHops, Ranked, Walks, sample_negatives
from graphfeed.storage.graph.by_type import ByType, TensorOrDict
from graphfeed.storage.graph.sampled_subgraph import SampledSubgraph
from graphfeed.storage.graph.sampling.joined_hops import join_hops
from graphfeed.storage.graph.sampling.page_rank import rank_by_hops, rank_nodes
from graphfeed.storage.graph.sampling.rows import MiniBatchRows, Picked, pick_in_trees
from graphfeed.storage.graph.sampling.walks import open_walks, walk_by_hops
from graphfeed.storage.graph.sampling_request import Draws, Hop, SamplingRequest, Seeds, draws_of
from graphfeed.storage.graph.type_names import ends_of, type_name
from graphfeed.storage.graph.walk_request import WalkRequest


class Way(NamedTuple):
    """How a graph serves a request. `sample`, `DataLoader.explain()` and the rules for windows act on it."""

    at_once: bool
    """Whether all hops of a mini-batch are sampled in one call. Otherwise, `pick` samples one hop after the other."""
    reason: str
    """Why, in a few words."""
    window_bytes: float | None = None
    """Maximum size of the samples of a window of mini-batches that are sampled at once; each thread of a loader samples
    its own window. None if windows gain nothing."""


class SamplingGraph(ABC):
    """A graph that can be sampled.

    A user-defined graph implements `num_nodes`, `num_edges` and `sample_neighbors`. It then works with every sampler,
    except that LABOR needs `sample_layer_neighbors`, and temporal sampling needs `pick`. With `disjoint`, there is one
    call per tree. Other methods may be overridden, for example `sample`, to sample all hops in one call.

    Node ids are those of the graph. Without types, `ByType` is a tensor; with types, a dict by node type. Draws should
    depend only on the key and the node, as in `draw(key, node, number)`, so that mini-batches are the same for any
    number of workers. A graph is sent to worker processes with `pickle`.
    """

    supported_options: ClassVar[Collection[str]] = ("replace", "probs_name")
    """Options that `sample_neighbors` supports. Leave out those that your method ignores: samplers that use them then
    raise an error instead of sampling without them."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Accept the former name of `supported_options`."""
        super().__init_subclass__(**kwargs)
        rename_overrides(cls, {"heeds": "supported_options"})

    @property
    @abstractmethod
    def num_nodes(self) -> int | dict[str, int]:
        """Number of nodes; by node type, in the order of their ids, if the graph has types."""

    @property
    @abstractmethod
    def num_edges(self) -> int | dict[str, int]:
        """Number of edges; by edge type "source:relation:destination", in the order of fan-outs, if it has types."""

    @abstractmethod
    def sample_neighbors(
        self,
        seeds: TensorOrDict,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        key: int | None = None,
    ) -> SampledSubgraph:
        """Sample one hop: in-edges of the seeds, with the graph's ids and no row ids. A fan-out of -1 takes all."""

    def sample_layer_neighbors(
        self,
        seeds: TensorOrDict,
        fanouts: torch.Tensor,
        replace: bool = False,
        probs_name: str | None = None,
        *,
        random_seed: torch.Tensor | Sequence[int] | None = None,
        seed2_contribution: float = 0.0,
    ) -> SampledSubgraph:
        """Sample one hop of in-edges by random variates of the neighbours (LABOR). Optional."""
        raise NotImplementedError(
            f"{type(self).__name__} has no sample_layer_neighbors; write it, or sample with sample_neighbor instead"
        )

    @property
    def edge_types(self) -> list[str]:
        """Edge types "source:relation:destination" in the order of fan-outs; empty if the graph has no types."""
        counts = self.num_edges
        return [] if isinstance(counts, int) else list(counts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def validate(self, request: SamplingRequest) -> None:
        """Raise if the graph can't serve a request; called when a stage is built.

        Raises:
            ValueError: A hop has neither one fan-out nor one per edge type, or the graph ignores a requested option.
        """
        options = {"replace": request.replace, "probs_name": request.probs_name is not None}
        for name in [name for name, is_wanted in options.items() if is_wanted]:
            if name not in self.supported_options:
                raise ValueError(
                    f"sample_neighbors of {type(self).__name__} ignores {name}, which the sampler uses; implement "
                    f"{name} and list it in `supported_options`, or leave {name.replace('probs', 'prob')} out of the "
                    "sampler"
                )
        num_types = len(self.edge_types) or 1
        for hop, fanout in enumerate(request.fanouts):
            if len(fanout) not in (1, num_types):
                raise ValueError(
                    f"fanouts[{hop}] has {len(fanout)} numbers; give one fan-out for all edge types"
                    + (f", or {num_types}: one per edge type" if num_types > 1 else ": the graph has one edge type")
                )

    def prepare(self, request: SamplingRequest) -> None:  # noqa: B027 - optional
        """Precompute arrays for a request, before the graph is sent to processes that would each compute them."""

    def way(self, request: SamplingRequest, *, on_cpu: bool = True) -> Way:  # noqa: ARG002
        """Return how the graph serves a request, given whether the seeds are on the CPU."""
        return Way(False, f"{type(self).__name__} samples one hop at a time")

    @checked
    def sample_hops(
        self,
        seeds: ByType | Seeds,
        request: SamplingRequest,
        keys: Sequence[Any],
        *,
        seeds_timestamp: ByType | None = None,
        seed2_contribution: float = 0.0,
    ) -> list[SampledSubgraph]:
        """Sample all hops, each from all rows found so far, and relabel.

        Temporal sampling without `disjoint` doesn't deduplicate nodes, since a node at two times has two rows. There,
        the rows of a hop are its columns, followed by the source of every edge.

        Args:
            seeds: Node ids, by node type if the graph has types; or `Seeds`, with times and windows.
            request: Parameters of sampling, such as the fan-outs.
            keys: The key of each hop, the seeds' own hop first; with LABOR, one or two keys per hop.
            seeds_timestamp: The time of each seed, by node type as the seeds are, unless these are `Seeds`.
            seed2_contribution: With LABOR, the share of the nodes that draw with the second key.

        Returns:
            One subgraph per hop, the outermost first. Row ids of a subgraph are the column ids of the preceding one.
        """
        draws = draws_of(request, keys, seed2_contribution)
        return self.sample([Seeds.of(seeds, seeds_timestamp)], request, [draws])[0]

    def sample_joined(self, seeds: ByType | Seeds, request: SamplingRequest, keys: Sequence[Any]) -> JoinedHops:
        """Sample like `sample_hops`, and return all hops joined, with the edges of each type in the order of hops."""
        return join_hops(self.sample_hops(seeds, request, keys), disjoint=request.disjoint)

    def sample_each_joined(
        self, seeds: Sequence[Seeds], request: SamplingRequest, draws: Sequence[Sequence[Draws]]
    ) -> list[JoinedHops]:
        """Sample several mini-batches like `sample`, and return all hops of each joined."""
        return [join_hops(own, disjoint=request.disjoint) for own in self.sample(seeds, request, draws)]

    def sample(
        self,
        seeds: Sequence[Seeds],
        request: SamplingRequest,
        draws: Sequence[Sequence[Draws]],
    ) -> list[list[SampledSubgraph]]:
        """Sample all hops of several mini-batches; by default hop by hop, each hop for all of them at once.

        A partitioned graph sends one request per owner and hop.

        Args:
            seeds: The seeds of each mini-batch.
            draws: For each mini-batch, the draws of each hop, the seeds' own hop first (`draws_of`).

        Returns:
            The hops of each mini-batch, the outermost first, as from `sample_hops`.
        """
        given = zip(seeds, draws, strict=True)
        minibatches = [MiniBatchRows(self.num_nodes, own, request, drawn) for own, drawn in given]
        layers: list[list[SampledSubgraph]] = [[] for _ in minibatches]
        for number in range(len(request.fanouts) if minibatches else 0):
            nodes, hops = zip(*[own.hop(number) for own in minibatches], strict=True)
            picked = self.pick_each(nodes, hops)
            for known, hop in zip(layers, map(MiniBatchRows.add_sampled, minibatches, picked), strict=True):
                known.insert(0, hop)
        return layers

    def pick_each(self, nodes: Sequence[ByType], hops: Sequence[Hop]) -> list[Picked]:
        """Call `pick` for the same hop of several mini-batches. Override it to sample them at once.

        With `disjoint`, `pick` is called separately for each tree, with `hop.trees` None.
        """
        return list(map(partial(pick_in_trees, self.pick), nodes, hops))

    def pick(self, nodes: TensorOrDict, hop: Hop) -> Picked:
        """Sample one hop of in-edges, with the ids of the graph.

        By default, by `sample_neighbors` or `sample_layer_neighbors` (LABOR). Override it for temporal sampling.

        Args:
            nodes: Node ids; by node type if the graph has types.

        Returns:
            The hop without row ids; and the time of each of its edges if the next hop uses them, else None.

        Raises:
            NotImplementedError: The graph doesn't support this kind of sampling.
        """
        request, (keys, share) = hop.request, hop.draws
        if request.temporal is not None:
            raise NotImplementedError(
                f"{type(self).__name__} has no pick for temporal hops; write it, or sample with sample_neighbor instead"
            )
        options = nodes, hop.fanout, request.replace, request.probs_name
        if request.strategy != "labor":
            return self.sample_neighbors(*options, key=int(keys[0])), None
        seeds = [int(key) for key in keys]
        return self.sample_layer_neighbors(*options, random_seed=seeds, seed2_contribution=share / 2**64), None

    def in_subgraph(self, nodes: ByType) -> SampledSubgraph:
        """Return all in-edges of the nodes, with the ids of the graph. Raises the errors of `sample_neighbors`.

        Args:
            nodes: Node ids, in the order of the columns; by node type if the graph has types.
        """
        return self.sample_neighbors(nodes, torch.tensor([-1], device="cpu"), key=0)

    @checked
    def sample_walks(
        self,
        seeds: ByType,
        request: WalkRequest,
        *,
        key: int | None = None,
        numbers: torch.Tensor | None = None,
        edge_ids: bool = False,
    ) -> Walks:
        """Sample random walks against the direction of the edges: a step goes from a node to the source of an in-edge.

        A step draws an in-edge of the node, uniformly or by weight, of the edge type of the step. With `p` or `q`, the
        chance of an edge also depends on its source (node2vec; Grover and Leskovec, KDD 2016): it is divided by `p` if
        the source is the node before, and by `q` if that is neither a source of an in-edge of the source. A walk ends
        at a node without such in-edges, or by `stop`. It depends only on the key, its start and its number.

        By default, each step is one hop of all walks (`pick`), with the number of the walk as its tree. A second-order
        step also needs the in-edges of nodes that were drawn.

        Args:
            seeds: Start nodes; by node type if the graph has types, all of the type that the first step leads from.
            key: The key of the draws (`Key.at`); by default, the result of `draw_key`.
            numbers: The number of each walk, int64. By default, those from each seed are numbered from 0.
            edge_ids: Whether to return the ids of the edges.

        Returns:
            The nodes of the walks, int64, shape (seeds * per_seed, length + 1), those of one seed in consecutive rows,
            with -1 after the end of a walk; and the ids of the edges, shape (seeds * per_seed, length), or None.

        Raises:
            KeyError: The graph lacks an edge type or an attribute.
            ValueError: A seed is not a node or has another type, or the graph has types and the request has none.
        """
        starts, own = open_walks(self, seeds, request)
        check_count("key", 0 if key is None else key, 0, MASK)
        drawn = draw_key() if key is None else int(key)
        return self.walk(starts, own if numbers is None else numbers, request, drawn, edge_ids=edge_ids)

    def validate_walks(self, request: WalkRequest) -> None:
        """Raise the errors of `validate` and `sample_walks` if the graph can't serve a request for walks."""
        request.check_types(self.edge_types)
        self.validate(request.hop(self.edge_types))

    def prepare_walks(self, request: WalkRequest) -> None:
        """Precompute arrays for walks, before the graph is sent to processes that would each compute them."""
        self.prepare(request.hop(self.edge_types))

    def walk(
        self, starts: torch.Tensor, numbers: torch.Tensor, request: WalkRequest, key: int, *, edge_ids: bool
    ) -> Walks:
        """Return walks for `sample_walks`, given the start and the number of each. Override it to walk at once."""
        return walk_by_hops(self, starts, numbers, request, key, edge_ids=edge_ids)

    @checked
    def page_rank(
        self, seeds: ByType, top: int, alpha: float = 0.15, bound: float = 1e-4, *, per_type: bool = False
    ) -> Ranked | dict[str, Ranked]:
        """Return the nodes with the highest personalized PageRank of each seed, with their scores in units of 2**-32.

        `PageRankSampler` describes the scores. By default, each round of pushes reads the in-edges of its nodes.

        Args:
            seeds: Node ids; by node type if the graph has types.
            top: Number of nodes for each seed.
            alpha: Share of a node's mass that stays there, from 0.001 to 1.
            bound: Limit of a node's residual, as a share of the mass, divided by its degree.
            per_type: Whether `top` is the number of nodes of each type.

        Returns:
            The nodes; if the graph has types, by edge type: those of "item:ppr:user" are items, and the seeds users.
        """
        return rank_nodes(self, seeds, top, alpha, bound, per_type=per_type)

    def push(self, seeds: torch.Tensor, top: int, alpha: int, bound: int, groups: torch.Tensor) -> Ranked:
        """Return the result of `ops.push_mass`, with ids in the whole graph. Override it to push in one call."""
        return rank_by_hops(self, seeds, top, alpha, bound, groups)

    def prepare_push(self) -> None:  # noqa: B027
        """Precompute arrays for `push`, before the graph is sent to processes that would each compute them."""

    def random_walks(self, starts: torch.Tensor, length: int, *, key: int | None = None) -> torch.Tensor:
        """Walk at random like `sample_walks`, but a walk that reaches a node without in-edges stays there.

        Walk `i` depends only on the key, its start and `i`.

        Args:
            starts: Start node of each walk; the graph must have no types.
            key: The key of the draws (`Key.at`); by default, the result of `draw_key`.

        Returns:
            Node ids in the dtype of the starts, shape (walks, length + 1); the starts are the first column.

        Raises:
            ValueError: The graph has types, a start is not a node, or the length is negative.
        """
        starts = as_ids("starts", starts)
        check_vector("starts", starts)
        check_ids("starts", starts, self.num_nodes if isinstance(self.num_nodes, int) else LARGEST)
        numbers = torch.arange(len(starts), device="cpu")
        nodes = self.sample_walks(starts, WalkRequest(length), key=key, numbers=numbers).nodes
        last = nodes.gather(1, (nodes >= 0).sum(1, keepdim=True) - 1)
        return torch.where(nodes < 0, last, nodes).to(starts.dtype)

    @checked
    def sample_negative_edges_uniform(
        self,
        edge_type: str | tuple[str, str, str] | None,
        node_pairs: torch.Tensor,
        negative_ratio: int,
        *,
        key: int | None = None,
    ) -> torch.Tensor:
        """Return the pairs, followed by copies of each with a destination drawn uniformly from the nodes of its type.

        A drawn pair may be an edge; this is not checked. Draw `i` depends only on the key and on `i`.

        Args:
            edge_type: Type of the pairs, "source:relation:destination" or a tuple of the three; None and "" stand for
                ids of all types. The graph needs only the node types, not the relation.
            node_pairs: Pairs of a source and a destination, integers, shape (N, 2).
            negative_ratio: Number of copies of each pair, 1 or more.
            key: The key of the draws (`Key.at`); by default, the result of `draw_key`.

        Returns:
            Shape (N * (1 + negative_ratio), 2): all pairs, then `negative_ratio` copies of the first, and so on.

        Raises:
            KeyError: The graph doesn't have the node types of the edge type.
            ValueError: The pairs have a wrong shape, an id is not a node of its type, or the ratio is below 1. Ids on a
                GPU are checked later, when they are used as seeds, to avoid a synchronization here.
        """
        num_nodes, edge_type = self.num_nodes, type_name(edge_type)
        node_pairs = as_ids("node_pairs", node_pairs)
        if not edge_type:
            total = num_nodes if isinstance(num_nodes, int) else sum(num_nodes.values())
            sizes = [total, total]
        else:
            counts = num_nodes if isinstance(num_nodes, dict) else {}
            sizes = [counts[node_type] for node_type in joined_types(str(edge_type), counts)]
        key = draw_key() if key is None else key
        result = sample_negatives(node_pairs, negative_ratio, sizes[1], key)
        for name, column, size in zip(("sources", "destinations"), node_pairs.unbind(1), sizes, strict=True):
            # On a GPU, the check would synchronize.
            if column.is_cpu:
                check_ids(f"{name} of node_pairs", column, size)
        return result


def joined_types(edge_type: str, node_types: Collection[str]) -> tuple[str, str]:
    ends = ends_of(edge_type)
    if not set(ends) <= set(node_types):
        known = f"the node types {list(node_types)}" if node_types else "no types"
        raise KeyError(f"edge_type is {brief(edge_type)}, but the graph has {known}")
    return ends
