"""Sample node pairs that stand for missing edges."""

import torch

from graphfeed.ops.arguments import ID_DTYPES, check_count, check_seed, check_tensors
from graphfeed.ops.backend import kernels
from graphfeed.ops.memory import buffers


def sample_negatives(pairs: torch.Tensor, negative_ratio: int, num_destinations: int, key: int) -> torch.Tensor:
    """Return the pairs, followed by copies of each with a destination that is drawn uniformly.

    Draw `i` is a function of the key and of `i` alone. A drawn pair may be an edge: nothing checks that. The cost is
    one pass over the result.

    Args:
        pairs: int32 or int64, shape (N, 2): sources and destinations.
        negative_ratio: How many copies there are of each pair, 1 or more.
        num_destinations: Destinations are drawn from `0 .. num_destinations - 1`.
        key: Key of the draws (`Key.at`).

    Returns:
        Shape (N * (1 + negative_ratio), 2), the copies in the order of the pairs, those of one pair side by side.

    Raises:
        TypeError: The pairs have another dtype.
        ValueError: The pairs have another shape, the ratio is below 1, there are no destinations to draw from, or more
            than the dtype can represent.
    """
    check_tensors(pairs=pairs)
    check_count("num_destinations", num_destinations, 0)
    if pairs.dim() != 2 or pairs.shape[1] != 2:
        raise ValueError(
            f"Only tensor with shape N*2 is supported for negative sampling, but got {list(pairs.shape)}; "
            "give (source, destination) pairs as rows"
        )
    if pairs.dtype not in ID_DTYPES:
        raise TypeError(f"pairs must be torch.int32 or torch.int64, but is {pairs.dtype}; convert it with .to(...)")
    check_count("negative_ratio", negative_ratio, 1)
    check_seed("key", key)
    if negative_ratio >= 1 << 31:
        raise ValueError(f"negative_ratio must be below 2**31, but is {negative_ratio}")
    if num_destinations < 1 and len(pairs) > 0:
        raise ValueError(f"num_destinations must be 1 or more, but is {num_destinations}; nothing can be drawn")
    if num_destinations - 1 > torch.iinfo(pairs.dtype).max:
        raise ValueError(f"pairs are {pairs.dtype}, too narrow for {num_destinations} destinations; give them as int64")
    out = buffers.empty((len(pairs) * (1 + negative_ratio), 2), pairs.dtype, pairs.device)
    module = kernels("sampling.sample_negatives", pairs)
    module.sample_negatives(pairs.contiguous(), negative_ratio, num_destinations, key, out)
    return out
