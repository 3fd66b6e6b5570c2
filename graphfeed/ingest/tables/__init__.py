"""Tables of nodes and edges.

Files of several formats become columns here, a batch of rows at a time. What is built from them is in
`graphfeed.ingest.build`.
"""
