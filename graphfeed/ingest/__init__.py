"""Files in: from the formats that people have to tensors, graphs and data sets. Nothing below this room imports it.

What it makes is laid out on disk by `graphfeed.storage`. Objects of other libraries are for `graphfeed.interop`.
"""

from graphfeed.ingest.build.dataset_builder import build_dataset
from graphfeed.ingest.build.guess_spec import guess_spec
from graphfeed.ingest.build.spec import EdgeTable, NodeTable, Spec, Split, read_spec
from graphfeed.ingest.gigl.loaded_graph_tensors import LoadedGraphTensors
from graphfeed.ingest.gigl.serialized_graph import SerializedGraphMetadata, SerializedTFRecordInfo, TFDatasetOptions
from graphfeed.ingest.gigl.tfrecord_data_loader import TFRecordDataLoader
from graphfeed.ingest.gigl.tfrecord_graph import load_torch_tensors_from_tf_record
from graphfeed.ingest.tfrecord.example_schema import FixedLenFeature
from graphfeed.ingest.tfrecord.tfrecord_reader import read_tfrecords
from graphfeed.ingest.tfrecord.tfrecord_writer import write_tfrecords
from graphfeed.storage.datasets import inspect_dataset, inspect_graph_file

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
    "inspect_graph_file",
    "load_torch_tensors_from_tf_record",
    "read_spec",
    "read_tfrecords",
    "write_tfrecords",
]
