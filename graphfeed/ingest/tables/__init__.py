"""Tables of nodes and edges.

Files, frames and streams of other engines become relations of DuckDB here, for `graphfeed.ingest.build`.
"""
