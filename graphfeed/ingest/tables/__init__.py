"""Tables of nodes and edges.

Files, frames and streams of other engines become DuckDB relations here, for `graphfeed.ingest.dataset`.
"""
