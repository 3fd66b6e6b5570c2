"""Who computes: worker processes behind the interface of `concurrent.futures.Executor`.

A process that dies is replaced, and what it was doing is done again. Any other executor can take its place without a
change here. How results come back is in `graphfeed.loader.transport`.
"""
