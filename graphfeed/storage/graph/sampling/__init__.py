"""How a graph in memory is sampled: one hop, all hops, with types, in time, and negatives.

This is the work behind the methods of `FusedCSCSamplingGraph`; the loops over edges are in `graphfeed.ops`.
"""
