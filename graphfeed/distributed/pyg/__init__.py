"""The classes of PyG's distributed package, with PyG's signatures and file layout.

What they stand on is beside this folder; loaders of one machine are in `graphfeed.pyg`.
"""
