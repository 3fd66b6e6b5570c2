"""Tables of nodes and edges.

Files of several formats, frames and streams of other engines become relations of DuckDB here. What is built from them
is in `graphfeed.ingest.build`.
"""
