"""TFRecord files: records are checked, parsed into columns and written here.

The loops over bytes are kernels of `graphfeed.ops.records`; GiGL's own classes are in `graphfeed.ingest.gigl`.
"""
