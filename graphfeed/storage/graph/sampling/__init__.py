"""Sampling from graph arrays: one hop or all hops, typed and temporal sampling, and negatives.

The methods of `FusedCSCSamplingGraph` use these functions; the loops over edges are in `graphfeed.ops`.
"""
