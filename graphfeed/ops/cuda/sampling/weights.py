"""Turn weights into fixed-point running sums, with torch's operations."""

import torch


def cumulate_weights(indptr, weights, out):
    # All edges at once, so that a column of many edges takes no longer than as many columns.
    starts, exact = indptr.to(out.device), weights.double()
    columns = torch.repeat_interleave(starts.diff(), output_size=out.numel())
    largest = torch.zeros(starts.numel() - 1, dtype=torch.float64, device=out.device)
    largest.scatter_reduce_(0, columns, exact, "amax")
    # Adding a half and truncating rounds to the nearest unit, as on the CPU.
    units = (exact / largest[columns] * 2147483648.0 + 0.5).long()
    # May exceed 64 bits and begin anew, which is lost in the difference.
    out.copy_(units.clamp_(min=1).mul_(exact > 0).cumsum_(0))
    before = torch.cat([out.new_zeros(1), out])[starts[:-1]]
    out.sub_(before[columns])
