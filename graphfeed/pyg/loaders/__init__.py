"""PyG's loaders.

Each takes the arguments of the PyG loader of its name and makes a pipeline of stages. The stages are in
`graphfeed.pyg.stages`; loaders of several machines are in `graphfeed.distributed.pyg`.
"""
