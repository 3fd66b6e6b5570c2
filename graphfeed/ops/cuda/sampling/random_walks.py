"""Kernel of random walks of first order."""

import numpy as np
import torch

from graphfeed.ops.cuda.launch import launch, upload


def random_walks(graph, steps, starts, trees, walks, out, edges):
    """CUDA version of the CPU kernel; `steps` has arrays of NumPy, and there is no scratch."""
    del walks
    # One copy for all arrays of the steps.
    parts = [np.asarray(part).view(np.int64) for part in steps[:4]]
    table = upload(torch.from_numpy(np.concatenate(parts)), out.device)
    arrays = [part if part.numel() else None for part in table.split([len(part) for part in parts])]
    given = graph.indptr, graph.indices, graph.types, graph.cumulative, *arrays, out.shape[1] - 1
    launch("random_walks", starts.numel(), *given, starts, trees, starts.numel(), out, edges)
    return True
