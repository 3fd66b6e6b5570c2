"""A cache on a GPU for features in pinned memory: the time that it saves on the bus.

Ids are drawn by a power law, so that an eighth of the rows get most of the requests.
Ratios are relative to the same case without a cache, in the same run. The last line of a table is the possible gain.
"""

from collections.abc import Iterator

import torch

import graphfeed as gf
from benchmarks.cache import CACHE_SHARE, draw_ids
from benchmarks.cuda import DEVICE, device_clock
from benchmarks.graphs import load_features
from benchmarks.predicted import pin
from benchmarks.scale import Scale
from benchmarks.table import Row, compare, render
from benchmarks.timing import Case, Times, in_turn

WITHOUT = "pinned memory, no cache"


def report(scale: Scale) -> Iterator[str]:
    """Yield a table, or a message that there is no device."""
    if not torch.cuda.is_available():
        yield "gpu_cache: torch finds no CUDA device here, so nothing was measured.\n"
        return
    yield f"gpu_cache: {torch.cuda.get_device_name()}\n"
    yield feature_table(torch.from_numpy(load_features(scale.products, scale.cache)), scale)


def feature_table(values: torch.Tensor, scale: Scale) -> str:
    """Time reading rows by power-law ids, with different ids in each round, once the cache is warm."""
    far, near = (gf.TorchBasedFeature(own) for own in (pin(values), values.to(DEVICE)))
    cached = gf.gpu_cached_feature(far, values.nbytes // CACHE_SHARE, DEVICE)
    rounds = range(scale.cached_batches + scale.repeats)
    ids = [draw_ids(len(values), scale.gathered_rows, seed).to(DEVICE) for seed in rounds]
    for own in ids[scale.repeats :]:
        cached.read(own)
    cases: dict[str, Case] = {
        WITHOUT: lambda number: far.read(ids[number]),
        f"the same behind a cache of 1/{CACHE_SHARE} of the bytes": lambda number: cached.read(ids[number]),
        "memory of the device": lambda number: near.read(ids[number]),
    }
    times = in_turn(cases, scale.repeats, device_clock)
    rows = compare(times, WITHOUT, "ms", 1e3)
    rows.append(Row("rows missed, of all requested", "%", Times([100 * cached.miss_rate]), cached.miss_rate))
    return render(f"features: some {scale.gathered_rows} rows of {values[:1].nbytes} bytes by power-law ids", rows)
