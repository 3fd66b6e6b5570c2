"""Which rank a process is, in PyG's words."""

from dataclasses import dataclass
from enum import Enum

from graphfeed.ops.arguments import checked


class DistRole(Enum):
    """What a process does. There is one role: it holds a part, samples, and trains."""

    WORKER = 1


@checked
@dataclass
class DistContext:
    """Which rank this process is, as in `torch_geometric.distributed`.

    Example:
        >>> context = DistContext(rank=0, global_rank=0, world_size=2, global_world_size=2, group_name="sage")
        >>> context.worker_name
        'sage-0'
    """

    rank: int
    """The number of this process, and of the part that it holds."""
    global_rank: int
    """The same as `rank`, for there is one role."""
    world_size: int
    """The number of processes, and of parts."""
    global_world_size: int
    """The same as `world_size`."""
    group_name: str
    """A name for messages; it also tells the job from others that use the same address."""
    role: DistRole = DistRole.WORKER

    @property
    def worker_name(self) -> str:
        """The name of the group and the rank."""
        return f"{self.group_name}-{self.rank}"
