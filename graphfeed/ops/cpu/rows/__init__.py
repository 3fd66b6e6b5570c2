"""CPU kernels of `graphfeed.ops.rows`.

Rows of any dtype are copied as words or bytes. The state of a cache consists of arrays that its owner passes in.
"""
