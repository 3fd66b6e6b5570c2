"""Mini-batches that ranks make together.

Ranks sample and fetch one large mini-batch, each for the nodes of its own part. Ranks that make mini-batches of their
own need none of this.
"""
