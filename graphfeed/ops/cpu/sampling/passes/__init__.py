"""The passes that sampling is made of: each a kernel that reads and writes arrays of a mini-batch (`state.py`).

They open columns, count edges, fill picks in one of the ways of drawing, read neighbours, and relabel them. The
programs in `graphfeed.ops.sampling` chain them.
"""
