"""Communication between ranks: they find each other and exchange tensors.

`Peers` are the ranks of the process group, or of a rendezvous at a `RendezvousAddress`. Each sends requests to the
others and answers theirs in threads. Before that, all ranks compare their parts and runs (`RunComparison`).
The contents of messages are defined by `graphfeed.distributed.cooperative`, and by partitioned graphs and features.
"""
