"""How a graph in memory is sampled.

This is the work behind the methods of `FusedCSCSamplingGraph`: one hop, all hops, with types, in time, and negatives;
and what is computed from a graph for it. Loops over edges are in `graphfeed.ops`.
"""
