"""Operations on the structure of a graph: CSC, relabelling, unique ids, look-ups of ids and edges.

Nothing here is random; operations that draw are in `graphfeed.ops.sampling`. The graphs that hold such arrays are in
`graphfeed.storage.graph`.
"""
