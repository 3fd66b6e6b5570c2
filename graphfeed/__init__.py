"""graphfeed feeds mini-batches of large graphs to models: you chain stages into a pipeline, and the loader runs it.

`__init__.pyi` lists the public names by subject, and ARCHITECTURE.md describes the folders.

    >>> import graphfeed as gf
    >>> graph = gf.from_coo(([1, 2, 0], [0, 0, 1]), num_nodes=3)
    >>> pipe = gf.ItemSampler(gf.ItemSet(3, names="seeds"), batch_size=2, shuffle=True)
    >>> pipe = pipe.sample_neighbor(graph, fanouts=[5, 5])
    >>> with gf.DataLoader(pipe, num_workers=2, seed=0) as loader:
    ...     [minibatch.num_layers() for minibatch in loader]
    [2, 2]
"""

import ast
import difflib
import importlib
import pkgutil
import typing

from graphfeed.ops import process

__version__ = "0.2.0"


def _read_stub(text: str) -> dict[str, str]:
    """Return the names that a part of the stub imports from packages, each with its module."""
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
    return {name.name: node.module for node in imports if node.module != __name__ for name in node.names}


# The stub is the only list of names: type checkers read it, too. Names below the version are imported on first use.
_above, _, _below = (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode().partition("\n__version__: str\n")
_SHOWN, _FOUND_IN = _read_stub(_above), _read_stub(_below)
globals().update({name: getattr(importlib.import_module(module), name) for name, module in _SHOWN.items()})
__all__ = ["__version__", *_SHOWN]  # noqa: PLE0604

_FROM_MATRIX = "coo = matrix.tocoo(); graph = from_coo((coo.row, coo.col), num_nodes=coo.shape[0])"
_TO_MATRIX = "matrix = scipy.sparse.csc_array((values, graph.indices, graph.csc_indptr))"
# Names that were removed in 0.2.0, with their replacements; docs/ingest.md shows more.
_REMOVED = {
    "from_networkx": f"matrix = networkx.to_scipy_sparse_array(g); {_FROM_MATRIX}",
    "from_scipy": _FROM_MATRIX,
    "to_networkx": f"{_TO_MATRIX}; g = networkx.from_scipy_sparse_array(matrix, create_using=networkx.MultiDiGraph)",
    "to_scipy": _TO_MATRIX,
}

# Extensions by optional packages, which lower packages find only by the names on the left.
process.ENTRY_POINTS.update(
    converters={
        "as_stage": "graphfeed.interop.torch_pipes:as_stage",
        "compute_blocks": "graphfeed.interop.dgl:compute_blocks",
        "legacy_names": "graphfeed.interop.graphbolt:translate",
        "relbench_loader": "graphfeed.pyg.loaders.listed_link_loader:ListedLinkLoader",
        "to_pyg_data": "graphfeed.pyg.data.fill_batch:fill_batch",
    },
    executors={"servers": "graphfeed.distributed.servers.remote_executor:SamplingServers"},
    rules={"cooperate": "graphfeed.distributed.cooperative.cooperate:cooperate"},
    stages={
        "mark_end": "graphfeed.interop.graphbolt:EndMarker",
        "mark_feature_fetcher_start": "graphfeed.interop.graphbolt:FeatureFetcherStartMarker",
        "prefetch": "graphfeed.interop.graphbolt:PrefetcherIterDataPipe",
        "to_pyg_data": "graphfeed.pyg.stages.fill_data:ToPyGData",
        "wait": "graphfeed.interop.graphbolt:Waiter",
    },
)


def __getattr__(name: str) -> typing.Any:
    if name in _FOUND_IN:
        return getattr(importlib.import_module(_FOUND_IN[name]), name)
    if name == "MeetingPoint":  # its name until 0.2.0
        return importlib.import_module("graphfeed.distributed").MeetingPoint
    if name in ("channels", "distributed", "ingest", "interop", "pyg"):
        return importlib.import_module(f"graphfeed.{name}")
    if name.startswith("_"):  # `inspect` and similar modules try many of these, and ignore the message
        raise AttributeError(f"module 'graphfeed' has no attribute {name!r}")
    graphbolt = importlib.import_module("graphfeed.interop.graphbolt")
    replaced = graphbolt.REPLACED | graphbolt.FORMER | {old: f"write {new}" for old, new in _REMOVED.items()}
    near = difflib.get_close_matches(name, [*__all__, *_FOUND_IN])
    hint = f"; {replaced[name]}" if name in replaced else f"; did you mean {' or '.join(near)}?" if near else ""
    raise AttributeError(f"module 'graphfeed' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted(__all__)
