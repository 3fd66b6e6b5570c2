"""Sample all hops of a mini-batch. The public operations on single hops are in the parent package.

A recipe selects passes from `graphfeed.ops.cpu.sampling.passes`; a program runs them in sequence on its own arrays.
"""
