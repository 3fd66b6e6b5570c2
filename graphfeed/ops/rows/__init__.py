"""Ops on the rows of tensors and files: gather, copy, read, delete, and which of them a cache keeps."""
