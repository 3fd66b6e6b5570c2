"""What the ranks of one machine share.

Columns and rows of all parts of a machine, in memory that each of its ranks opens. Ranks of other machines are asked by
`graphfeed.distributed.ranks`.
"""
