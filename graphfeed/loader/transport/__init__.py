"""What crosses a cut: mini-batches between threads, CUDA streams and processes.

Queues, shared memory, sockets and pickling are here; who computes is in `graphfeed.loader.executors`. Channels for a
user's own processes are in `graphfeed.channels`, which is built on this folder.
"""
