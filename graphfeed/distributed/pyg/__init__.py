"""The classes of PyG's distributed package, with PyG's signatures and file layout.

They are built on `graphfeed.distributed`. Loaders for one machine are in `graphfeed.pyg`.
"""
