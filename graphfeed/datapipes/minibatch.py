"""The data that flows between stages."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

import torch
from typing_extensions import TypeVar

from graphfeed.ops import Key, generator_seed
from graphfeed.ops.arguments import checked, mark_copied_below
from graphfeed.ops.process import load_entry_point
from graphfeed.storage.graph import SampledSubgraph, TensorOrDict, to_type_dict
from graphfeed.storage.memory import all_pinned, shapes_repr, tensor_repr, to_device

FORMER_NAMES = {
    "seed_nodes": "seeds",
    "node_pairs": "seeds, shape (N, 2)",
    "negative_srcs": "seeds[labels == 0]",
    "negative_dsts": "seeds[labels == 0]",
    "compacted_node_pairs": "compacted_seeds, shape (N, 2)",
    "compacted_negative_srcs": "compacted_seeds[labels == 0]",
    "compacted_negative_dsts": "compacted_seeds[labels == 0]",
    "positive_node_pairs": "compacted_seeds[labels == 1].T",
    "negative_node_pairs": "compacted_seeds[labels == 0].T",
    "node_pairs_with_labels": "compacted_seeds.T and labels",
}
"""Attributes of mini-batches in GraphBolt 2.1, and their replacements."""


@dataclass(repr=False, eq=False)
class MiniBatch:
    """Seeds, the subgraphs sampled around them, and their features. Every field is None until a stage sets it.

    For a graph without types, a value is a tensor. Otherwise it is a dict: by node type for nodes, or by edge type
    "src:rel:dst" for edge seeds. To type checkers, it has the attributes of both. Stages may set other attributes; type
    checkers know those that a subclass declares.

    Printing shows dtypes and shapes; `print(minibatch.details())` shows the values.

    Attributes:
        labels: One label per seed.
        seeds: Node ids, shape (N,); edges, shape (N, 2); or hyperlinks, shape (N, k).
        indexes: Index of the query that each seed belongs to.
        sampled_subgraphs: One subgraph per hop, the outermost hop first; the last one has the neighbours of the seeds.
        input_nodes: Ids of the nodes whose features are needed, the seeds first: the rows of the outermost hop.
        node_features: Features by name, or by (node type, name) if the graph has types.
        edge_features: One dict per hop, by name or by (edge type, name).
        compacted_seeds: Edge seeds as positions in the columns of the innermost hop, and so in `input_nodes`.
        timestamp: Time of each seed, for temporal sampling. Edge seeds have one per row, or one per node in the seeds'
            shape.
        pre_time_window: Length of the time window before each seed's time, for temporal sampling. None: the sampler's
            default.
        seed_edge_ids: Ids of edge seeds, for reading their features. Negatives, which come after the edges, have no
            ids.
        seed_edge_features: One row per id in `seed_edge_ids`, by name or by (edge type, name).
        walks: Nodes of random walks, shape (seeds, walks, length + 1), with -1 after the end of a walk.
        walk_edge_ids: Ids of the edges of the walks, shape (seeds, walks, length), with -1 after the end of a walk.
        feature_dims: For `to_pyg_data`: dimension of the rows in PyG's data, -1 if it is the only one, by (domain,
            type, name).
        matrices: After `to_matrix`: a `NeighborMatrix` per hop, the hop of the seeds first.
        key: Identity of the mini-batch, from which random stages derive their draws.

    Example:
        >>> MiniBatch(seeds=torch.tensor([5, 7]))
        MiniBatch(
          seeds=int64[2],
        )
    """

    labels: TensorOrDict = None
    seeds: TensorOrDict = None
    indexes: TensorOrDict = None
    sampled_subgraphs: list[SampledSubgraph] | Any = None
    input_nodes: TensorOrDict = None
    node_features: dict[Any, torch.Tensor] | Any = None
    edge_features: list[dict[Any, torch.Tensor]] | Any = None
    compacted_seeds: TensorOrDict = None
    timestamp: TensorOrDict = field(default=None, kw_only=True)
    pre_time_window: TensorOrDict = field(default=None, kw_only=True)
    seed_edge_ids: TensorOrDict = field(default=None, kw_only=True)
    seed_edge_features: dict[Any, torch.Tensor] | Any = field(default=None, kw_only=True)
    walks: torch.Tensor | Any = field(default=None, kw_only=True)
    walk_edge_ids: torch.Tensor | Any = field(default=None, kw_only=True)
    feature_dims: dict[Any, int] | Any = field(default=None, kw_only=True)
    matrices: list[Any] | Any = field(default=None, kw_only=True)
    key: Key | Any = field(default=None, kw_only=True)

    if not TYPE_CHECKING:
        # Hidden from type checkers, so that they report misspelled attributes.

        def __getattr__(self, name: str) -> Any:
            """Raise an AttributeError. For a name of GraphBolt 2.1, it mentions the current name."""
            hint = (
                f"; it is {FORMER_NAMES[name]} now, as the names of GraphBolt changed" if name in FORMER_NAMES else ""
            )
            said = f"{type(self).__name__!r} object has no attribute {name!r}{hint}"
            raise AttributeError(said, name=name, obj=self)

    def __copy__(self) -> Self:
        # Every stage makes a copy; this takes less than half as long as the default of `copy`.
        made = object.__new__(type(self))
        state: Any = object.__getstate__(self)
        # A subclass may have slots.
        own, slots = state if isinstance(state, tuple) else (state, {})
        vars(made).update(own or {})
        for name, value in slots.items():
            setattr(made, name, value)
        return made

    def node_ids(self) -> TensorOrDict:
        """Return the ids of the nodes whose features are needed: `input_nodes`."""
        return self.input_nodes

    def num_layers(self) -> int:
        """Return the number of sampled hops; 0 before sampling."""
        return len(self.sampled_subgraphs or ())

    @checked
    def edge_ids(self, layer_id: int) -> TensorOrDict:
        """Return the ids of a hop's edges."""
        if not self.sampled_subgraphs:
            raise ValueError("the mini-batch has no sampled_subgraphs yet; put a sampler before this stage")
        return self.sampled_subgraphs[layer_id].original_edge_ids

    @checked
    def set_node_features(self, node_features: dict[Any, torch.Tensor]) -> None:
        """Set the node features."""
        self.node_features = node_features

    @checked
    def set_edge_features(self, edge_features: list[dict[Any, torch.Tensor]]) -> None:
        """Set the edge features."""
        self.edge_features = edge_features

    @property
    def blocks(self) -> list[Any] | Any:
        """The subgraphs as DGL blocks, created on each access; None before sampling."""
        return None if self.sampled_subgraphs is None else self.compute_blocks()

    def compute_blocks(self) -> list[Any]:
        """Return the subgraphs as DGL blocks, outermost hop first. The mini-batch is not modified.

        The source nodes of the first block have their ids as `dgl.NID`; the edges of each block have theirs as
        `dgl.EID`.

        Raises:
            ImportError: DGL is not installed.
            ValueError: A subgraph has no row or column ids.
        """
        blocks: list[Any] = load_entry_point("converters", "compute_blocks")(self.sampled_subgraphs or [])
        return blocks

    @checked
    def to_pyg_data(self, by_hop: bool = False) -> Any:
        """Return the mini-batch as a PyG `Data`, or a `HeteroData` if the graph has types. Needs PyG.

        The stage `pipe.to_pyg_data()` does the same in workers. Attributes are named as by PyG's `NeighborLoader`:

        - `edge_index` has the edges of all hops, including parallel edges, and `e_id` their ids, shape (E,). An edge
          that several hops drew occurs once; one drawn twice in a hop (`replace=True`), twice. None before sampling.
          `edge_weight` has the numbers of visits, or the scores, from samplers that give the edges weights.
        - `n_id` has the ids of the nodes. `num_sampled_nodes` has the number of seeds, then of the nodes added per hop.
        - The only feature of a node type is `x`, the only one of an edge type `edge_attr`; several features, and `y`,
          keep their names. Features of `from_pyg` keep their shape in PyG's data, such as (N,) for `y`.
        - Node seeds come first: `batch_size` is their number, `y` their labels, `seed_time` their times. Edge seeds
          become `edge_label_index`, shape (2, N), with `edge_label` and `edge_label_time`.
        - `input_id` is the item set's member of that name; `torch.arange(len(ids))` identifies the items.

        Args:
            by_hop: Whether edges are in hop order, those of the seeds first, as in PyG and by default in the stage.
                Then `num_sampled_edges` has the number of edges that each hop adds, for PyG's `trim_to_layer`.
                Otherwise edges are sorted by source and destination, as in GraphBolt, which takes much longer.

        Raises:
            ValueError: Edges were removed after their features were fetched, or a feature has a name that is in use,
                such as `y` if there are labels.
        """
        return load_entry_point("converters", "to_pyg_data")(self, by_hop)

    @checked
    def generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """Return a new generator on a device, seeded by this mini-batch's key and the running stage.

        A stage that draws from it gives the same values with any number and kind of workers, and in a resumed epoch.
        Each call in a stage returns a generator with the same seed, so use one for all draws. Outside of the `__call__`
        of a stage, as in a training loop or in an `__iter__`, the seed depends only on the key. A mini-batch without a
        key, such as one created by hand, gets a random seed (see `graphfeed.seed`).

        Raises:
            TypeError: The class of the stage has `seeded=False` but not `draws=True`.
        """
        return torch.Generator(device).manual_seed(generator_seed(self.key))

    @checked
    def to(self, device: torch.device | str, non_blocking: bool = False) -> "MiniBatch":
        """Move all tensors to a device, including those in attributes that are not fields. Return this object.

        The device "pinned" means page-locked CPU memory. Tensors of less than 256 KiB, and larger ones that share a
        storage, are copied to it, and to a GPU, in blocks that stay in memory as long as any of their tensors:
        `.clone()` one that you keep for long.
        """
        move_together([self], device, non_blocking=non_blocking)
        return self

    def pin_memory(self) -> "MiniBatch":
        """Move all tensors to pinned memory. Return this object."""
        return self.to("pinned")

    def is_pinned(self) -> bool:
        """Return whether there are tensors and all of them are in pinned memory."""
        return all_pinned(self)

    def details(self) -> str:
        """Return the attributes with their values as a string, one per line, in reverse alphabetical order.

        Private attributes and blocks are left out, and so are fields that GraphBolt does not have if they are None.
        """
        names = {name for name, value in vars(self).items() if value is not None} | FIELDS_SHOWN
        shown = {name: getattr(self, name) for name in sorted(names, reverse=True) if not name.startswith("_")}
        if self.sampled_subgraphs is not None:
            shown["sampled_subgraphs"] = [subgraph.details() for subgraph in self.sampled_subgraphs]
        return tensor_repr(type(self).__name__, shown)

    def __repr__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if value is not None and not name.startswith("_")}
        return shapes_repr(type(self).__name__, shown)


def move_together(minibatches: Sequence[MiniBatch], device: torch.device | str, **options: bool) -> None:
    """Move all tensors of mini-batches to a device, the small ones in one block. Options are those of `to_device`."""
    before = [own.input_nodes for own in minibatches]
    given = [{name: value for name, value in vars(own).items() if value is not None} for own in minibatches]
    for own, moved in zip(minibatches, to_device(given, device, **options), strict=True):
        for name, value in moved.items():
            setattr(own, name, value)
    for own, nodes in zip(minibatches, before, strict=True):
        for node_type, ids in to_type_dict(nodes).items() if nodes is not None else ():
            mark_copied_below(ids, to_type_dict(own.input_nodes)[node_type])


Batch = TypeVar("Batch", default=MiniBatch, covariant=True)
"""Output type of a pipeline, for type checkers: mini-batches, unless a stage converts them."""
FIELDS_SHOWN = {field.name for field in fields(MiniBatch) if not field.kw_only}
