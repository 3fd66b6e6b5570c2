import torch

import graphfeed as gf
from graphfeed.loader.caches import find_caches

ROWS = torch.arange(40.0).reshape(20, 2)


def make_pipe() -> gf.Datapipe:
    """Return a pipeline with features that share a cache, have two caches, or have none."""
    plain = gf.TorchBasedFeature(ROWS)
    shared = gf.cpu_cached_feature({"x": plain, "y": gf.TorchBasedFeature(-ROWS)}, 500, "lru")
    both = gf.gpu_cached_feature(gf.cpu_cached_feature(plain, 1000), 100, device="cpu")
    features = {("node", None, "x"): shared["x"], ("node", None, "y"): shared["y"], ("node", None, "plain"): plain}
    store = gf.BasicFeatureStore({**features, ("node", None, "both"): both})
    pipe: gf.Datapipe = gf.ItemSampler(gf.ItemSet(20, names="seeds"), batch_size=10)
    return pipe.fetch_feature(store, ["x", "y", "both"])


def test_each_cache_is_found_once_with_all_that_it_is_for() -> None:
    assert [(names, cache.kind) for names, cache in find_caches(make_pipe())] == [
        ("node x, node y", "rows in memory, lru"),
        ("node both", "rows on cpu, lru of each set"),
        ("node both", "rows in memory, sieve"),
    ]


def test_a_plan_shows_how_caches_were_used() -> None:
    pipe = make_pipe()
    with gf.DataLoader(pipe, num_workers=0, seed=0) as loader:
        size = find_caches(pipe)[0][1].max_size_in_bytes
        assert f"  rows in memory, lru: {size} B, 0 hits, 0 misses; node x, node y" in loader.explain().splitlines()
        for _ in range(2):
            list(loader)
        hits, misses = find_caches(pipe)[0][1].hits, find_caches(pipe)[0][1].misses
        assert (hits + misses, misses >= 40) == (80, True)
        assert f"lru: {size} B, {hits} hits, {misses} misses; node x" in loader.explain()
        assert "caches" not in gf.DataLoader(pipe.inputs[0]).explain()
