"""Memory that processes or CUDA streams share, and trees of tensors.

Everything here works on tensors alone. What a graph or a feature puts into such memory is its own affair, in
`graphfeed.storage.graph` and `graphfeed.storage.features`.
"""
