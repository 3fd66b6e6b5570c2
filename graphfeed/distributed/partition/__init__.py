"""Partitions on disk.

Their layout, how parts are written and opened, reports, and the command. Methods that assign nodes to parts are in
`graphfeed.storage.graph.assignment`.
"""
