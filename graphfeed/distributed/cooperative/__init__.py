"""Joint mini-batches: all ranks produce one large mini-batch, each for the nodes of its own part.

Stages with `cooperative=True` sample and fetch in this way. Ranks with separate mini-batches don't need this package.
"""

from graphfeed.distributed.cooperative.cooperative_conv import CooperativeConv, CooperativeConvFunction
from graphfeed.distributed.cooperative.joint_fetcher import JointFetcher
from graphfeed.distributed.cooperative.joint_sampler import JointSampler

__all__ = ["CooperativeConv", "CooperativeConvFunction", "JointFetcher", "JointSampler"]
