"""RelBench's `LinkNeighborLoader`, for programs that import it from `relbench.modeling.loader`.

It is `graphfeed.pyg.ListedLinkLoader`. Programs for entity tasks use `graphfeed.pyg.NeighborLoader`, and
`graphfeed.ingest.from_relbench` reads the folders.
"""

from typing import Any

from graphfeed.ops.process import load_entry_point


def __getattr__(name: str) -> Any:
    if name == "LinkNeighborLoader":
        return load_entry_point("converters", "relbench_loader")
    raise AttributeError(f"module 'graphfeed.interop.relbench' has no attribute {name!r}; it has LinkNeighborLoader")
