"""What carries mini-batches across a cut of the pipeline.

Threads pass them through a bounded queue (`thread_channel`), CUDA streams by events (`streams`), and processes through
sockets and shared memory: `pickling` splits an object into a header and the bytes of its arrays, `mailbox` sends both
as a message, `layout` says where they lie, `arena` manages the memory that sender and receiver share, and
`record_socket` moves the small records that announce messages. Only what the loader needs is here; channels for the
user's own processes build on it in `graphfeed.channels`.
"""
