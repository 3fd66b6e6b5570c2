"""Delete rows by index: a search finds where each remaining row goes, and the rows are gathered."""

import torch

from graphfeed.ops.cuda.rows.gather import gather_rows


def delete_rows(values, places, row_bytes, out):
    """Copy rows of `row_bytes` bytes between flat byte arrays, but those at the places, which ascend."""
    rows = torch.arange(out.numel() // row_bytes, device=out.device)
    # How many rows stay before each place: a row of the result comes after the places that as many or fewer precede.
    before = places - torch.arange(places.numel(), device=out.device)
    gather_rows(values, rows + torch.searchsorted(before, rows, right=True), row_bytes, out)


def delete_from_columns(indptr, places, out):
    """Write where each column starts when the edges at the places are gone."""
    out.copy_(indptr - torch.searchsorted(places, indptr.to(torch.int64)))
