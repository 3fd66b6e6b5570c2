"""All hops of a mini-batch.

A recipe says which passes sample a mini-batch, a program chains them, and arrays keep what they read and write. The
passes themselves are in `graphfeed.ops.cpu.sampling.passes`; single hops for a GPU are one folder up.
"""
