"""Membership tests of ids."""

import numpy as np
import torch

from graphfeed.ops.arguments import check_vector


def isin(elements: torch.Tensor, test_elements: torch.Tensor) -> torch.Tensor:
    """Return whether each element is in `test_elements`, like `torch.isin`, for 1-D tensors of ids.

    Args:
        elements, test_elements: int32 or int64, 1-D.

    Returns:
        bool, shape (len(elements),).

    Raises:
        ValueError: A tensor has another number of dimensions.

    Example:
        >>> isin(torch.tensor([5, -1, 7]), torch.tensor([7, 5, 9]))
        tensor([ True, False,  True])
    """
    check_vector("elements", elements)
    check_vector("test_elements", test_elements)
    if not (elements.is_cpu and test_elements.is_cpu and test_elements.numel()):
        return torch.isin(elements, test_elements)
    # With ten ids or more, torch takes two to five times as long.
    given, tests = elements.numpy(), np.sort(test_elements.numpy())
    return torch.from_numpy(tests.take(tests.searchsorted(given), mode="clip") == given)
