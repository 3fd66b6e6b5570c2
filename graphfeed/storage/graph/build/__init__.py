"""Graphs made of edges, and edges of graphs.

Lists of edges become column starts and sources here, and go back. Graphs in files are in
`graphfeed.storage.graph.files`.
"""
