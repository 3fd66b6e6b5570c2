"""Files in: from the formats that people have to tensors, graphs and data sets.

This room is optional, and nothing below it imports it. What it makes, and how that lies on disk, belongs to
`graphfeed.storage`. Objects of other libraries, rather than files, belong to `graphfeed.interop`.
"""

from graphfeed.ingest.dataset_builder import build_dataset
from graphfeed.ingest.dataset_report import inspect_dataset
from graphfeed.ingest.example_schema import FixedLenFeature
from graphfeed.ingest.read_tfrecords import read_tfrecords
from graphfeed.ingest.spec import EdgeTable, NodeTable, Spec, Split, read_spec
from graphfeed.ingest.write_tfrecords import write_tfrecords

__all__ = [
    "EdgeTable",
    "FixedLenFeature",
    "NodeTable",
    "Spec",
    "Split",
    "build_dataset",
    "inspect_dataset",
    "read_spec",
    "read_tfrecords",
    "write_tfrecords",
]
