"""Mini-batches that ranks make together: one large one, each rank for the nodes of its own part.

Stages with `cooperative=True` sample and fetch so. Ranks that make mini-batches of their own need none of this.
"""

from graphfeed.distributed.cooperative.cooperative_conv import CooperativeConv, CooperativeConvFunction
from graphfeed.distributed.cooperative.joint_fetcher import JointFetcher
from graphfeed.distributed.cooperative.joint_sampler import JointSampler

__all__ = ["CooperativeConv", "CooperativeConvFunction", "JointFetcher", "JointSampler"]
