"""The classes of PyG's distributed package.

Contexts, stores, samplers, loaders and the partitioner, with PyG's signatures and file layout. What they stand on is
beside this folder; loaders of one machine are in `graphfeed.pyg`.
"""
