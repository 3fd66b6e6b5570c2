"""Methods that assign nodes to parts.

They say which part each node of a graph goes to. Parts are cut, written and sampled in `graphfeed.distributed`.
"""
