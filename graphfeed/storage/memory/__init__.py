"""Memory shared between processes or CUDA streams, trees of tensors, and encoding of tensors as bytes.

This package knows only tensors. Graphs and features, which use it, are in `graphfeed.storage.graph` and
`graphfeed.storage.features`; memory is allocated in `graphfeed.ops`.
"""

from graphfeed.storage.memory.cache_use import Cache
from graphfeed.storage.memory.memory_limits import (
    available_memory,
    check_nodes_fit,
    control_groups,
    memory_limit,
    ranks_of_machine,
)
from graphfeed.storage.memory.new_file import has_stamp, map_new_npy, new_file, new_stamp, stamp_file, write_tensors
from graphfeed.storage.memory.outside_files import (
    ARRAY_SHELLS,
    BROKEN,
    Shell,
    clear_headers,
    map_npy,
    read_tensors,
    shell_array,
)
from graphfeed.storage.memory.shareable import Shareable
from graphfeed.storage.memory.shared import FilePlace, Handle, Place, SharedBlock, find_places, from_bytes
from graphfeed.storage.memory.tensor_codec import (
    DTYPE_NAMES,
    DTYPES,
    Frame,
    TensorSpec,
    decode_tensors,
    describe_tensors,
    encode_tensors,
    read_frame,
    read_specs,
)
from graphfeed.storage.memory.tensor_repr import shapes_repr, tensor_repr
from graphfeed.storage.memory.tensor_tree import Movable, all_pinned, child_values, count_bytes, tensors_in, to_device

__all__ = [
    "ARRAY_SHELLS", "BROKEN", "DTYPES", "DTYPE_NAMES", "Cache", "FilePlace", "Frame", "Handle", "Movable", "Place",
    "Shareable", "SharedBlock", "Shell", "TensorSpec", "all_pinned", "available_memory", "check_nodes_fit",
    "child_values", "clear_headers", "control_groups", "count_bytes", "decode_tensors", "describe_tensors",
    "encode_tensors", "find_places", "from_bytes", "has_stamp", "map_new_npy", "map_npy", "memory_limit", "new_file",
    "new_stamp", "ranks_of_machine", "read_frame", "read_specs", "read_tensors", "shapes_repr", "shell_array",
    "stamp_file", "tensor_repr", "tensors_in", "to_device", "write_tensors",
]  # fmt: skip
