"""Ranks that find each other and exchange tensors.

They meet, ask and answer, and say which of them was lost. What is exchanged is decided by
`graphfeed.distributed.cooperative` and by graphs and features in parts.
"""
