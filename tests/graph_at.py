"""A graph that every process opens by its path, as docs/many-machines.md has it."""

from typing import Any

import graphfeed as gf


class GraphAt(gf.FusedCSCSamplingGraph):
    """Pickles as its path, so that each machine opens its own copy of the file."""

    def __init__(self, path: str) -> None:
        vars(self).update(vars(gf.load_graph(path)))
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphAt, (self.path,)
