"""The data that flows between stages."""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from typing_extensions import TypeVar

from graphfeed.ops import Key, generator_seed
from graphfeed.ops.arguments import checked, mark_copied_below
from graphfeed.ops.process import load_entry_point
from graphfeed.storage.graph import SampledSubgraph, to_type_dict
from graphfeed.storage.memory import all_pinned, move, shapes_repr, tensor_repr

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
"""What mini-batches had in GraphBolt 2.1, and where it is."""


@dataclass(repr=False, eq=False)
class MiniBatch:
    """Seeds, the subgraphs sampled around them, and their features. Every field is None until a stage sets it.

    For a graph without types, a value is a tensor. Otherwise it is a dict: by node type for nodes, or by edge type
    "src:rel:dst" for seeds that are edges. Stages may set other attributes; type checkers know those that a subclass
    declares. Printing shows dtypes and shapes; `print(minibatch.details())` shows the values.

    Example:
        >>> MiniBatch(seeds=torch.tensor([5, 7]))
        MiniBatch(
          seeds=int64[2],
        )
    """

    labels: Any = None
    """Aligned with the seeds."""
    seeds: Any = None
    """Node ids, shape (N,), or edges, shape (N, 2), or hyperlinks, shape (N, k)."""
    indexes: Any = None
    """Which query each seed belongs to."""
    sampled_subgraphs: list[SampledSubgraph] | Any = None
    """One per hop, the outermost first."""
    input_nodes: Any = None
    """The ids of the outermost hop's rows: the nodes whose features are needed."""
    node_features: dict[Any, torch.Tensor] | Any = None
    """By name, or by (node type, name) if the graph has types."""
    edge_features: list[dict[Any, torch.Tensor]] | Any = None
    """One per hop, each by name or by (edge type, name)."""
    compacted_seeds: Any = None
    """Edge seeds as positions among the innermost hop's columns."""
    timestamp: Any = field(default=None, kw_only=True)
    """The time of each seed, for temporal sampling. Edge seeds have one per row, or one per node in their shape."""
    pre_time_window: Any = field(default=None, kw_only=True)
    """How far back from its time each seed may look, for temporal sampling; None: as the sampler says."""
    seed_edge_ids: Any = field(default=None, kw_only=True)
    """The ids of seeds that are edges, by which their features are read. Negatives, behind them, have none."""
    seed_edge_features: dict[Any, torch.Tensor] | Any = field(default=None, kw_only=True)
    """A row for each of `seed_edge_ids`, by name or by (edge type, name)."""
    feature_dims: dict[Any, int] | Any = field(default=None, kw_only=True)
    """For `to_pyg_data`: the dimension that rows had in PyG's data, -1 if the only one, by (domain, type, name)."""
    key: Key | Any = field(default=None, kw_only=True)
    """Identifies the mini-batch; random stages draw from it."""

    if not TYPE_CHECKING:
        # Other attributes are fields of a subclass, so that type checkers find a slip.

        def __getattr__(self, name: str) -> Any:
            """Raise for an attribute that nobody has set; of a name of GraphBolt 2.1, say that of today."""
            hint = (
                f"; it is {FORMER_NAMES[name]} now, as the names of GraphBolt changed" if name in FORMER_NAMES else ""
            )
            said = f"{type(self).__name__!r} object has no attribute {name!r}{hint}"
            raise AttributeError(said, name=name, obj=self)

    def __copy__(self) -> Self:
        # As each stage makes one, in less than half of the time that `copy` takes by itself.
        made, state = object.__new__(type(self)), cast("Any", object.__getstate__(self))
        # A subclass may have slots.
        own, slots = state if isinstance(state, tuple) else (state, {})
        vars(made).update(own or {})
        for name, value in slots.items():
            setattr(made, name, value)
        return made

    def node_ids(self) -> Any:
        """Return the ids of the nodes whose features are needed: `input_nodes`."""
        return self.input_nodes

    def num_layers(self) -> int:
        """Return the number of sampled hops; 0 before sampling."""
        return len(self.sampled_subgraphs or ())

    @checked
    def edge_ids(self, layer_id: int) -> Any:
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
        """The subgraphs as DGL blocks, created at each access; None before sampling."""
        return None if self.sampled_subgraphs is None else self.compute_blocks()

    def compute_blocks(self) -> list[Any]:
        """Return the subgraphs as DGL blocks, the outermost first; the mini-batch does not change.

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

        `pipe.to_pyg_data()` is a stage that does this, so that workers do it. The names are those of `NeighborLoader`:

        - `edge_index` has the edges of all hops, parallel edges too, and `e_id` their ids, shape (E,). What several
          hops drew is there once; what one hop drew twice (`replace=True`), twice. None if nothing was sampled.
        - `n_id` has the ids of the nodes. `num_sampled_nodes` says how many are seeds, and how many each hop adds.
        - The only feature of a node type is `x`, the only one of an edge type `edge_attr`; several, and `y`, keep their
          names. Features of `from_pyg` keep the shape that they had in PyG's data, such as (N,) for `y`.
        - Seeds that are nodes come first: `batch_size` is their number, `y` their labels, `seed_time` their time. Seeds
          that are edges become `edge_label_index`, shape (2, N), with `edge_label` and `edge_label_time`.
        - `input_id` is the member of the item set with that name: `torch.arange(len(ids))` tells which items these are.

        Args:
            by_hop: Whether edges are in the order of the hops, those to the seeds first, as PyG has them and the stage
                by default, rather than sorted by source and destination, as GraphBolt has them, which takes several
                times as long. Then `num_sampled_edges` says how many edges each hop adds, for PyG's `trim_to_layer`.

        Raises:
            ValueError: Edges were removed after their features were fetched, or a feature has the name of something
                else, such as `y` beside labels.
        """
        return load_entry_point("converters", "to_pyg_data")(self, by_hop)

    @checked
    def generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """Return a new generator on a device, seeded by this mini-batch's key and the stage that is running.

        A stage that draws from it gives the same values with any number and kind of workers, and in a resumed epoch.
        Each call in a stage returns a generator with the same seed, so use one for all draws. Outside the `__call__`
        of a stage, as in a training loop or in an `__iter__`, the seed depends on the key alone. A mini-batch without
        a key, such as one made by hand, gets a random seed (see `graphfeed.seed`).

        Raises:
            TypeError: The class of the stage sets `foreign = False` but not `needs_key = True`.
        """
        return torch.Generator(device).manual_seed(generator_seed(self.key))

    @checked
    def to(self, device: torch.device | str, non_blocking: bool = False) -> "MiniBatch":
        """Move every tensor to a device, also those of attributes that are not fields; return this object.

        The device "pinned" means page-locked CPU memory. Tensors of less than 256 KiB cross to it, and to a GPU, in
        one block, and share it there: keep `.clone()` of what you keep for long.
        """
        before = self.input_nodes
        for name, value in move(vars(self), device, non_blocking=non_blocking).items():
            setattr(self, name, value)
        for node_type, ids in to_type_dict(before).items():
            mark_copied_below(ids, to_type_dict(self.input_nodes)[node_type])
        return self

    def pin_memory(self) -> "MiniBatch":
        """Move every tensor to pinned memory; return this object."""
        return self.to("pinned")

    def is_pinned(self) -> bool:
        """Return whether there are tensors and all of them are in pinned memory."""
        return all_pinned(self)

    def details(self) -> str:
        """Return the attributes with their values as text, one per line, in reverse alphabetical order.

        Private attributes, blocks, and fields that GraphBolt does not have if they are None, are left out.
        """
        names = {name for name, value in vars(self).items() if value is not None} | FIELDS_SHOWN
        shown = {name: getattr(self, name) for name in sorted(names, reverse=True) if not name.startswith("_")}
        if self.sampled_subgraphs is not None:
            shown["sampled_subgraphs"] = [subgraph.details() for subgraph in self.sampled_subgraphs]
        return tensor_repr(type(self).__name__, shown)

    def __repr__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if value is not None and not name.startswith("_")}
        return shapes_repr(type(self).__name__, shown)


Batch = TypeVar("Batch", default=MiniBatch, covariant=True)
"""What a pipeline yields, for type checkers: mini-batches, unless a stage makes something else of them."""
FIELDS_SHOWN = {field.name for field in fields(MiniBatch) if not field.kw_only}
