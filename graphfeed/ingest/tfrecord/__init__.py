"""TFRecord files: checking and parsing of records, and writing.

The loops over bytes are kernels in `graphfeed.ops.records`; GiGL's own classes are in `graphfeed.ingest.gigl`.
"""
