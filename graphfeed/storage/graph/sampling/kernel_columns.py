"""The columns of a graph in the dtypes that there are kernels for."""

from typing import TYPE_CHECKING

import torch

from graphfeed.ops import as_int64, as_types

if TYPE_CHECKING:
    from graphfeed.storage.graph.graph_arrays import GraphArrays


def kernel_columns(graph: "GraphArrays") -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return column starts and edge types as the CPU's kernels take them: int64, and uint8 or int32.

    Those of other dtypes are copied at the first call: 8 bytes per node, and 4 per edge. A GPU's kernels take all. What
    sampling reads beside them is computed from them, too: then it is known to fit them, and not checked.
    """
    graph.ensure_checked(whole=False)
    starts, types = graph.csc_indptr, graph.type_per_edge
    # There are kernels for int64 starts, and uint8 or int32 types, so that they need no copy.
    narrow = starts.dtype != torch.int64 or (types is not None and types.dtype not in (torch.uint8, torch.int32))
    if not narrow or not starts.is_cpu:
        return starts, types

    def widen() -> tuple[torch.Tensor | None, ...]:
        copies = as_int64(starts, starts), None if types is None else as_types(types, types)
        # Copies of what was checked.
        graph.mark_for_sampling(*copies)
        return copies

    return graph.derived("columns for kernels", (starts, types), widen, whole=False)  # type: ignore[no-any-return]
