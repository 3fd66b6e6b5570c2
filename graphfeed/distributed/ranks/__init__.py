"""Ranks that find each other and exchange tensors.

`Peers` are the ranks of the process group, or those that meet at a `MeetingPoint`: each asks the others and answers
them, in a thread of its own. `ask_owners` sends each question to the rank that owns its id, and `merge_columns` puts
the answers in order. Before that, all ranks compare what they hold (`Agreement`). What is exchanged is decided by
`graphfeed.distributed.cooperative`, and by graphs and features in parts.
"""
