"""Operations: pure functions on arrays, one operation per module.

Each module has an operation's contract, its checks and the allocation of its results. The kernels are in
`graphfeed.ops.cpu` and `graphfeed.ops.cuda`, under the same names. Graphs and features are in `graphfeed.storage`.

Unless stated otherwise, `indptr` has column starts, int32 or int64, shape (columns + 1,); `indices` has the source of
each edge; `key` is the key of random draws (`Key.at`); and ids are int32 or int64. A wrong dtype raises a TypeError,
and inconsistent arrays raise a ValueError.
"""

# fmt: off
from graphfeed.ops import rows, sampling, structure
from graphfeed.ops.backend import (
    as_int64,
    as_types,
    check_device,
    is_gpu,
    is_readable,
    kernels,
    load_kernels,
    on_gpu,
)
from graphfeed.ops.kernel_load import KernelLoad
from graphfeed.ops.keys import (
    RUNNING,
    Key,
    draw_key,
    draw_keys,
    draw_unkeyed,
    drawing,
    generator_seed,
    minibatch_key,
    seed,
)
from graphfeed.ops.memory.buffers import is_plain_memory
from graphfeed.ops.memory.pinned import max_uva_threads, pin_in_place, set_max_uva_threads
from graphfeed.ops.random import MASK, draw, fold
from graphfeed.ops.rows import *
from graphfeed.ops.sampling import *
from graphfeed.ops.structure import *
from graphfeed.ops.structure.unique import CompletedFuture, check_one_rank

__all__ = [
    "MASK", "RUNNING", "CompletedFuture", "KernelLoad", "Key", "as_int64", "as_types", "check_device", "check_one_rank",
    "draw", "draw_key", "draw_keys", "draw_unkeyed", "drawing", "fold", "generator_seed", "is_gpu", "is_plain_memory",
    "is_readable", "kernels", "load_kernels", "max_uva_threads", "minibatch_key", "on_gpu", "pin_in_place", "seed",
    "set_max_uva_threads",
]
# fmt: on
__all__ += rows.__all__
__all__ += sampling.__all__
__all__ += structure.__all__
