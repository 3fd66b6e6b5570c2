"""Communication between ranks: they find each other and exchange tensors.

`Peers` are the ranks of the process group, or those of a rendezvous at a `MeetingPoint`. Each sends requests to the
others and answers theirs in threads. Before that, all ranks compare their parts and runs (`Agreement`). The contents of
messages are defined by `graphfeed.distributed.cooperative`, and by partitioned graphs and features.
"""
