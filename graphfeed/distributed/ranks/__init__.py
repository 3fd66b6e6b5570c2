"""Ranks that find each other and exchange tensors.

`Peers` are the ranks of the process group, or those that meet at a `MeetingPoint`: each asks the others and answers
them, in a thread of its own. Before that, all ranks compare what they hold (`Agreement`). What is exchanged is decided
by `graphfeed.distributed.cooperative`, and by graphs and features in parts.
"""
