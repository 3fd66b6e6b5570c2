"""PyG's samplers.

Programs call them by themselves, or give them to a loader. Their mini-batches are those of the loaders in
`graphfeed.pyg.loaders`.
"""
