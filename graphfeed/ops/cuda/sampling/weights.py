"""Convert weights to fixed-point running sums, with torch operations."""

import torch


def cumulate_weights(indptr, weights, out):
    # Process all edges at once, so that a large column is as fast as many small ones.
    starts, exact = indptr.to(out.device), weights.double()
    columns = torch.repeat_interleave(starts.diff(), output_size=out.numel())
    largest = torch.zeros(starts.numel() - 1, dtype=torch.float64, device=out.device)
    largest.scatter_reduce_(0, columns, exact, "amax")
    # Adding a half and truncating rounds to the nearest unit, as on the CPU.
    units = (exact / largest[columns] * 2147483648.0 + 0.5).long()
    # The sums may wrap around, which cancels out in the difference.
    out.copy_(units.clamp_(min=1).mul_(exact > 0).cumsum_(0))
    before = torch.cat([out.new_zeros(1), out])[starts[:-1]]
    out.sub_(before[columns])
