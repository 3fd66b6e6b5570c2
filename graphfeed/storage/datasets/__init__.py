"""Item sets, tasks and datasets: those in a folder with a `metadata.yaml`, and WordNet, which comes with the package.

The module `graphfeed.datasets` has one function per dataset that needs no download. The graph's own file format is in
`graphfeed.storage.graph`. The functions with which other packages write folders are also here.
"""

from graphfeed.storage.datasets.array_files import (
    ArrayWriter,
    check_file,
    checksum,
    load_array,
    sync_folder,
    write_array,
    write_rows,
    write_text,
)
from graphfeed.storage.datasets.bounded_yaml import load_yaml
from graphfeed.storage.datasets.dataset_writer import EDGE_IDS, PROCESSED, DatasetWriter, RowFiles, checksums_of
from graphfeed.storage.datasets.edge_sorting import EdgeArray, Edges, Sorting, memory_for_sorting, split_column_ranges
from graphfeed.storage.datasets.file_tasks import LEAST_TASKS, TASK_SECONDS, FileTask, run_tasks
from graphfeed.storage.datasets.folder_writing import SCRATCH, check_new_folder, new_folder
from graphfeed.storage.datasets.identity import identify
from graphfeed.storage.datasets.inspect import inspect_dataset, inspect_graph_file
from graphfeed.storage.datasets.item_lists import ItemLists
from graphfeed.storage.datasets.item_set import (
    HeteroItemSet,
    ItemSet,
    Task,
    is_plain,
    num_groups_of,
    rows_of_groups,
    sets_of,
)
from graphfeed.storage.datasets.metadata import FILE_NAME, Section, stay_inside
from graphfeed.storage.datasets.on_disk_dataset import Dataset, OnDiskDataset, OnDiskTask, open_in_files
from graphfeed.storage.datasets.preprocess import LAYOUT, preprocess_ondisk_dataset
from graphfeed.storage.datasets.processed_arrays import LEGACY_NAMES
from graphfeed.storage.datasets.processed_graph import id_dtype, write_edges
from graphfeed.storage.datasets.wordnet import wordnet

__all__ = [
    "EDGE_IDS", "FILE_NAME", "LAYOUT", "LEAST_TASKS", "LEGACY_NAMES", "PROCESSED", "SCRATCH", "TASK_SECONDS",
    "ArrayWriter", "Dataset", "DatasetWriter", "EdgeArray", "Edges", "FileTask", "HeteroItemSet", "ItemLists",
    "ItemSet", "OnDiskDataset", "OnDiskTask", "RowFiles", "Section", "Sorting", "Task", "check_file",
    "check_new_folder", "checksum", "checksums_of", "id_dtype", "identify", "inspect_dataset", "inspect_graph_file",
    "is_plain", "load_array", "load_yaml", "memory_for_sorting", "new_folder", "num_groups_of", "open_in_files",
    "preprocess_ondisk_dataset", "rows_of_groups", "run_tasks", "sets_of", "split_column_ranges", "stay_inside",
    "sync_folder", "wordnet", "write_array", "write_edges", "write_rows", "write_text",
]  # fmt: skip
