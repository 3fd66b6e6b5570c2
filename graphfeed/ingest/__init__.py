"""Import of common file formats as tensors, graphs and data sets. No lower package imports this one.

`graphfeed.storage` defines the results' layout on disk. Objects of other libraries belong to `graphfeed.interop`.
"""

from graphfeed.ingest.dataset.dataset_builder import build_dataset
from graphfeed.ingest.dataset.guess_spec import guess_spec
from graphfeed.ingest.dataset.relbench import from_relbench
from graphfeed.ingest.dataset.spec import EdgeTable, NodeTable, Spec, read_spec
from graphfeed.ingest.dataset.split import Split
from graphfeed.ingest.dataset.task_table import TaskTable
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
    "TaskTable",
    "build_dataset",
    "from_relbench",
    "guess_spec",
    "inspect_dataset",
    "inspect_graph_file",
    "load_torch_tensors_from_tf_record",
    "read_spec",
    "read_tfrecords",
    "write_tfrecords",
]
