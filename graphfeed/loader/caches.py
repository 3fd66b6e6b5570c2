"""The caches that the stages of a pipeline read through."""

from graphfeed.datapipes import Datapipe
from graphfeed.datapipes.pipeline import traverse
from graphfeed.storage.memory import Cache, HasCaches


def find_caches(pipe: Datapipe) -> list[tuple[str, Cache]]:
    """Return each cache of the stages' graphs and features once, with the names of all that it is for."""
    caches: dict[int, tuple[dict[str, None], Cache]] = {}
    for stage in traverse(pipe):
        for value in vars(stage).values():
            for name, cache in value.list_caches() if isinstance(value, HasCaches) else ():
                caches.setdefault(id(cache), ({}, cache))[0][name] = None
    return [(", ".join(names), cache) for names, cache in caches.values()]
