"""GraphBolt: names that exist only so that programs written for GraphBolt run.

They are available as `graphfeed.NAME`, or by fluent names. Programs written for graphfeed don't need them.
"""

import io
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from graphfeed.datapipes import Datapipe, ItemNameWarning, Transform
from graphfeed.datapipes.pipeline import check_source, find, register, replace, traverse
from graphfeed.loader.stages import Prefetch
from graphfeed.ops.arguments import brief, check_count, check_fields, check_seconds, checked, kind_of
from graphfeed.storage.datasets import FILE_NAME, LEGACY_NAMES, HeteroItemSet, ItemSet, OnDiskDataset
from graphfeed.storage.graph import SampledSubgraph

__all__ = [
    "BuiltinDataset",
    "EndMarker",
    "FeatureFetcherStartMarker",
    "GBWarning",
    "ItemSetDict",
    "PrefetcherIterDataPipe",
    "SampledSubgraphImpl",
    "Waiter",
    "datapipe_graph_to_adjlist",
    "find_dps",
    "functional_datapipe",
    "numpy_save_aligned",
    "replace_dp",
    "traverse_dps",
]

GBWarning = ItemNameWarning
SampledSubgraphImpl = SampledSubgraph

_BY_FILE = "write metadata.yaml instead: OnDiskDataset reads and checks it"
_NO_FETCH = "leave it out: samplers read a pinned graph by themselves"
_NO_STREAM = "leave it out: the loader creates its own CUDA streams"
REPLACED = {
    "CombineCachedAndFetchedInSubgraph": _NO_FETCH,
    "FetchCachedInsubgraphData": _NO_FETCH,
    "FetchInsubgraphData": _NO_FETCH,
    "GPUGraphCache": "leave it out: a cache for the edges of a pinned graph cost more than it saved",
    "LegacyDataset": "from_dglgraph(legacy[0]) returns the graph; TorchBasedFeature and ItemSet take its tensors",
    "OnDiskFeatureDataDomain": _BY_FILE,
    "OnDiskFeatureDataFormat": _BY_FILE,
    "OnDiskGraphTopology": _BY_FILE,
    "OnDiskGraphTopologyType": _BY_FILE,
    "OnDiskMetaData": _BY_FILE,
    "OnDiskTVTSet": _BY_FILE,
    "OnDiskTVTSetData": _BY_FILE,
    "OnDiskTaskData": _BY_FILE,
    "all_to_all": "use torch.distributed.all_to_all instead",
    "get_device_to_host_uva_stream": _NO_STREAM,
    "get_host_to_device_uva_stream": _NO_STREAM,
    "subgraph_sampler": "import SubgraphSampler from graphfeed instead; its modules are not public",
}
"""Replacements for names of GraphBolt that graphfeed doesn't have, as the end of an error message."""
FORMER = {"from_fused_csc": "it is fused_csc_sampling_graph now, as the names of GraphBolt changed"}
"""The same for names of GraphBolt 2.1 that later releases don't have."""

# Stages.

Stage = TypeVar("Stage", bound=type)


@checked
def functional_datapipe(name: str) -> Callable[[Stage], Stage]:
    """Decorate a stage with a fluent name. `class MyStage(Transform, name="my_stage")` does the same.

    Raises:
        ValueError: Another stage has this name.
    """

    def decorate(stage: Stage) -> Stage:
        register(name, stage)
        return stage

    return decorate


class _PassOn(Transform, keeps_values=True, seeded=False):
    """Returns each mini-batch unchanged."""

    def __call__(self, minibatch: Any) -> Any:
        return minibatch


class EndMarker(_PassOn, name="mark_end", seeded=False):
    """Returns each mini-batch unchanged. The loader finds the end of a pipeline without a marker."""


class FeatureFetcherStartMarker(_PassOn, name="mark_feature_fetcher_start", seeded=False):
    """Returns each mini-batch unchanged. The loader cuts a pipeline according to where its stages may run."""


class Waiter(_PassOn, name="wait", seeded=False):
    """Calls the `wait()` method that an earlier stage attached to each mini-batch, and returns the mini-batch."""

    def __call__(self, minibatch: Any) -> Any:
        wait = getattr(minibatch, "wait", None)
        if not callable(wait):
            raise TypeError(
                f"wait() got {kind_of(minibatch)} without a wait method; leave wait() out of the pipeline, "
                "unless an earlier stage attaches this method to its mini-batches"
            )
        wait()
        return minibatch


class PrefetcherIterDataPipe(Prefetch, name="prefetch", keeps_values=True, inserted=False, seeded=False):
    """Runs the stages before it in a thread, a few mini-batches ahead, also without a loader.

    Raises:
        ValueError: The buffer size is below 1.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> [batch.seeds.tolist() for batch in ItemSampler(ItemSet(3, names="seeds"), 1).prefetch()]
        [[0], [1], [2]]
    """

    datapipe: Datapipe
    buffer_size: int = 10
    """Number of mini-batches that the thread may prefetch."""
    timeout_seconds: float = field(default=600.0, repr=False)
    """Maximum time to wait for a mini-batch; then iteration raises an error."""

    def __post_init__(self) -> None:
        check_source(self)
        check_fields(self)
        check_count("buffer_size", self.buffer_size, 1)
        check_seconds("timeout_seconds", self.timeout_seconds)


# Graphs of stages.

DataPipeGraph: TypeAlias = dict[int, tuple[Datapipe, "DataPipeGraph"]]
"""A stage by its `id()`, with the graphs of the stages that it reads from."""


def traverse_dps(datapipe: Datapipe) -> DataPipeGraph:
    """Return the graph of the stages of a pipeline; `traverse` returns a list instead.

    Example:
        >>> from graphfeed import ItemSampler, ItemSet
        >>> ((last, sources),) = traverse_dps(ItemSampler(ItemSet(3, names="seeds"), 1).transform()).values()
        >>> type(last).__name__, [type(stage).__name__ for stage, _ in sources.values()]
        ('MiniBatchTransformer', ['ItemSampler'])
    """
    if not isinstance(datapipe, Datapipe):
        raise TypeError(f"datapipe must be a pipeline of stages, but is {kind_of(datapipe)}")
    sources: DataPipeGraph = {}
    for stage in datapipe.inputs:
        sources.update(traverse_dps(stage))
    return {id(datapipe): (datapipe, sources)}


def last_of(graph: DataPipeGraph) -> Datapipe:
    ((stage, _),) = graph.values()
    return stage


@checked
def find_dps(graph: DataPipeGraph, dp_type: type) -> list[Datapipe]:
    """Return the stages of a class or its subclasses without duplicates, sources first; `find` takes a pipeline."""
    return find(last_of(graph), dp_type)


@checked
def replace_dp(graph: DataPipeGraph, old_datapipe: Datapipe, new_datapipe: Datapipe) -> DataPipeGraph:
    """Return a graph with one stage replaced; `replace` takes a pipeline instead.

    Stages are immutable. The returned graph has new stages from the replaced one to the last, and the new pipeline is
    its last stage: `next(iter(graph.values()))[0]`.

    Raises:
        ValueError: The stage is not in the graph.
    """
    return traverse_dps(replace(last_of(graph), old_datapipe, new_datapipe))


@checked
def datapipe_graph_to_adjlist(datapipe_graph: DataPipeGraph) -> dict[int, tuple[Datapipe, list[int]]]:
    """Return each stage by its `id()`, with the ids of the stages that it reads from. The last stage comes first."""
    stages = reversed(traverse(last_of(datapipe_graph)))
    return {id(stage): (stage, [id(source) for source in stage.inputs]) for stage in stages}


# Items and data sets.


class ItemSetDict(HeteroItemSet):
    """Deprecated subclass of `HeteroItemSet`, which replaces it."""

    def __init__(self, itemsets: Mapping[str, ItemSet]) -> None:
        warnings.warn("ItemSetDict is deprecated; use HeteroItemSet", DeprecationWarning, stacklevel=2)
        super().__init__(itemsets)


def translate(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a batch with the legacy names `seed_nodes`, `node_pairs` and `negative_*` replaced."""
    result = {name: value for name, value in values.items() if name not in LEGACY_NAMES}
    given = [name for name in ("seeds", "seed_nodes", "node_pairs") if name in values]
    if len(given) != 1:
        raise ValueError(
            f"items must have one of seeds, seed_nodes and node_pairs, but have {given}; "
            "negative_srcs and negative_dsts need node_pairs"
        )
    seeds = values[given[0]]
    ends = [values.get(name) for name in ("negative_srcs", "negative_dsts")]
    if all(part is None for part in ends):
        return {"seeds": seeds, **result}
    if given != ["node_pairs"]:
        raise ValueError(f"negative_srcs and negative_dsts need node_pairs, but the items have {given[0]}")
    if isinstance(seeds, Mapping):
        made = {
            edge_type: append_negatives(pairs, *(None if part is None else part.get(edge_type) for part in ends))
            for edge_type, pairs in seeds.items()
        }
        columns: Any = [{edge_type: parts[column] for edge_type, parts in made.items()} for column in range(3)]
    else:
        columns = append_negatives(seeds, *ends)
    # Existing labels and indexes of the batch are overwritten.
    return {**result, "seeds": columns[0], "labels": columns[1], "indexes": columns[2]}


def append_negatives(
    pairs: torch.Tensor, sources: torch.Tensor | None, destinations: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the seeds, labels and indexes of pairs and their negatives."""
    count = len(pairs)
    ends = {"negative_srcs": sources, "negative_dsts": destinations}
    for name, given in ends.items():
        if given is not None and (given.dim() != 2 or len(given) != count):
            raise ValueError(f"{name} must have shape ({count}, k), one row per pair, but has {tuple(given.shape)}")
    ratios = {given.shape[1] for given in ends.values() if given is not None}
    if len(ratios) > 1:
        raise ValueError(f"negative_srcs and negative_dsts must have one shape, but have {sorted(ratios)} columns")
    ratio = ratios.pop() if ratios else 0
    repeated = pairs.repeat_interleave(ratio, dim=0)
    # An endpoint without negatives is that of the pair.
    negatives = [repeated[:, end] if given is None else given.reshape(-1) for end, given in enumerate(ends.values())]
    # The N pairs, then their N * k negatives, those of the first pair first.
    seeds = torch.cat([pairs, torch.stack(negatives, dim=1).to(pairs.dtype)])
    labels = torch.zeros(len(seeds), device="cpu")
    labels[:count] = 1
    queries = torch.arange(count, device="cpu")
    # `indexes` are the positions of the pairs that the seeds belong to.
    return seeds, labels, torch.cat([queries, queries.repeat_interleave(ratio)])


class BuiltinDataset(OnDiskDataset):
    """One of GraphBolt's data sets, such as "cora" or "ogbn-products", read from a folder. Nothing is downloaded.

    Args:
        name: Name of the data set. Its folder has this name, or this name with "-seeds" appended.
        root: Parent of the data set's folder.

    Raises:
        FileNotFoundError: The folder does not exist. The message contains the expected path.
    """

    @checked
    def __init__(self, name: str, root: str | os.PathLike[str] = "datasets") -> None:
        names = [name] if "seeds" in name else [f"{name}-seeds", name]
        folders = [Path(root) / known for known in names]
        for folder in folders:
            if folder.is_dir():
                super().__init__(folder)
                return
        raise FileNotFoundError(
            f"there is no data set {name!r} in {Path(root).resolve()}, and graphfeed doesn't download it; unpack it "
            f"so that {folders[0] / FILE_NAME} exists"
        )


ALIGNMENT = 4096
PREFIX = 10
"""Number of bytes before the header's string: the magic string, the version, and the string's length."""


@checked
def numpy_save_aligned(file: str | os.PathLike[str] | BinaryIO, arr: Any, allow_pickle: bool = False) -> None:
    """Save an array like `numpy.save`, with its values aligned to 4096 bytes in the file. All `.npy` readers accept it.

    NumPy is not patched, so several threads may save at the same time.

    Args:
        file: File to write. A path that does not end in ".npy" gets this suffix.
        arr: An array, or any value that NumPy converts to one.
        allow_pickle: Has no effect: arrays of objects are never written.

    Raises:
        ValueError: The array contains objects.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> numpy_save_aligned(file, [1, 2, 3])
        >>> file.tell() - 3 * 8
        4096
    """
    if not isinstance(file, (str, os.PathLike)) and not hasattr(file, "write"):
        raise TypeError(f"file must be a path or an open file, but is {brief(file)}")
    array = np.asanyarray(arr)
    del allow_pickle
    if array.dtype.hasobject:
        raise ValueError(f"arr contains objects ({array.dtype}), which would have to be pickled; save numbers")
    if isinstance(file, (str, os.PathLike)):
        path = Path(file) if str(file).endswith(".npy") else Path(f"{os.fspath(file)}.npy")
        with path.open("wb") as opened:
            write_aligned(opened, array)
    else:
        write_aligned(file, array)


def write_aligned(file: BinaryIO, array: NDArray[Any]) -> None:
    fields = npy.header_data_from_array_1_0(array)
    usual = io.BytesIO()
    npy.write_array_header_1_0(usual, fields)
    text = usual.getvalue()[PREFIX:].rstrip()
    # The string is padded with spaces and ends with a line feed.
    length = -(-(PREFIX + len(text) + 1) // ALIGNMENT) * ALIGNMENT - PREFIX
    file.write(npy.magic(1, 0) + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n")
    values = array.T if fields["fortran_order"] else array
    file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
