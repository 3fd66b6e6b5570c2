"""Item sets, tasks and data sets: those in a folder with a `metadata.yaml`, and WordNet, which comes with the package.

A data set is a graph, its features and its tasks. The graph's own file format is in `graphfeed.storage.graph`. As a
module, `graphfeed.datasets` has one function per data set that needs no download. Here are also what other rooms write
folders with: arrays that are written part by part, a folder that appears when it is finished, and the sorting of edges
that are larger than memory.
"""

from graphfeed.storage.datasets.array_files import (
    PART_BYTES,
    ArrayWriter,
    check_file,
    checksum,
    sync_folder,
    write_array,
    write_text,
)
from graphfeed.storage.datasets.folder_writing import check_new_folder, new_folder
from graphfeed.storage.datasets.torch_files import BROKEN, read_tensors
from graphfeed.storage.datasets.wordnet import wordnet

__all__ = [
    "BROKEN",
    "PART_BYTES",
    "ArrayWriter",
    "check_file",
    "check_new_folder",
    "checksum",
    "new_folder",
    "read_tensors",
    "sync_folder",
    "wordnet",
    "write_array",
    "write_text",
]
