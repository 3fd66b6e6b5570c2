"""All hops of a mini-batch; single hops for a GPU are one folder up.

A recipe says which passes (of `graphfeed.ops.cpu.sampling.passes`) sample it, a program chains them, on its arrays.
"""
