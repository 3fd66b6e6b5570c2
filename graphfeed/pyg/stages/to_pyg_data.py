"""PyG's data objects as what a pipeline gives."""

from typing import Any

from graphfeed.datapipes import MiniBatch, Transform
from graphfeed.pyg.data.minibatch_data import make_data


class ToPyGData(Transform, name="to_pyg_data"):
    """Turns each mini-batch into a PyG `Data`, or a `HeteroData` if the graph has types: the last stage of a pipeline.

    Workers make them too. `MiniBatch.to_pyg_data` says what they hold. Only `copy_to`, and stages of your own that
    derive from `Transform`, can follow.

    Raises:
        TypeError: When it runs: something else than a mini-batch arrived.
    """

    by_hop: bool = True
    """Whether edges are in the order of the hops, as in PyG's `NeighborLoader`, with `num_sampled_edges`, or sorted by
    source and destination, which takes several times as long."""

    same_size = True

    def __call__(self, minibatch: Any) -> Any:
        if not isinstance(minibatch, MiniBatch):
            raise TypeError(
                f"to_pyg_data() needs mini-batches, but a {type(minibatch).__name__} arrived; let the item set name "
                "its members, and have each stage return a MiniBatch"
            )
        return make_data(minibatch, self.by_hop)
