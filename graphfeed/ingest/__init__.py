"""Files in: from the formats that people have to tensors, graphs and data sets.

This room is optional, and nothing below it imports it. What it makes, and how that lies on disk, belongs to
`graphfeed.storage`. Objects of other libraries, rather than files, belong to `graphfeed.interop`.
"""

from graphfeed.ingest.dataset_builder import build_dataset
from graphfeed.ingest.dataset_report import inspect_dataset
from graphfeed.ingest.example_schema import FixedLenFeature
from graphfeed.ingest.guess_spec import guess_spec
from graphfeed.ingest.loaded_graph_tensors import LoadedGraphTensors
from graphfeed.ingest.serialized_graph import SerializedGraphMetadata, SerializedTFRecordInfo, TFDatasetOptions
from graphfeed.ingest.spec import EdgeTable, NodeTable, Spec, Split, read_spec
from graphfeed.ingest.tfrecord_data_loader import TFRecordDataLoader
from graphfeed.ingest.tfrecord_graph import load_torch_tensors_from_tf_record
from graphfeed.ingest.tfrecord_reader import read_tfrecords
from graphfeed.ingest.tfrecord_writer import write_tfrecords

__all__ = [
    "EdgeTable",
    "FixedLenFeature",
    "LoadedGraphTensors",
    "NodeTable",
    "SerializedGraphMetadata",
    "SerializedTFRecordInfo",
    "Spec",
    "Split",
    "TFDatasetOptions",
    "TFRecordDataLoader",
    "build_dataset",
    "guess_spec",
    "inspect_dataset",
    "load_torch_tensors_from_tf_record",
    "read_spec",
    "read_tfrecords",
    "write_tfrecords",
]
