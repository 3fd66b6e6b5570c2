"""Memory of tensors: reusable buffers, shared memory, page-locked memory, and memory-mapped files.

Operations allocate their results and their scratch here. `graphfeed.storage.memory` shares graphs and features with
other processes.
"""

from graphfeed.ops.mapped_memory import FileMemory, is_written, map_file, mapping_of
from graphfeed.ops.memory.buffers import NUMPY_DTYPES, POOL, as_bytes, flat_bytes, has_known_copies, pinning
from graphfeed.ops.memory.pinned import PinOwner, empty_locked, is_page_locked, page_lock
from graphfeed.ops.memory.read_choice import ReadChoice
from graphfeed.ops.memory.shared_memory import (
    ALIGNMENT,
    Bytes,
    MemoryFile,
    SharedMemory,
    align,
    collapse,
    map_shared,
    populate,
    read_at_random,
)

__all__ = [
    "ALIGNMENT", "NUMPY_DTYPES", "POOL", "Bytes", "FileMemory", "MemoryFile", "PinOwner", "ReadChoice", "SharedMemory",
    "align", "as_bytes", "collapse", "empty_locked", "flat_bytes", "has_known_copies", "is_page_locked", "is_written",
    "map_file", "map_shared", "mapping_of", "page_lock", "pinning", "populate", "read_at_random",
]  # fmt: skip
