"""Where a stage may run."""

import enum


class Placement(enum.Enum):
    """Where a stage runs, as its field `runs_in` says; `DataLoader.explain()` shows where it does run.

    Set it in the class of a stage, or in a single stage by `pipe.transform(work).changed(runs_in=...)`.

    Example:
        >>> from graphfeed import Transform
        >>> class Report(Transform):
        ...     runs_in = Placement.MAIN
        ...     def __call__(self, minibatch):
        ...         print(minibatch.key.index)
        ...         return minibatch
    """

    AUTO = "auto"
    """Where the loader finds it best: in workers, if all stages before it run there. A stage that reads features does
    if workers can read them as well, and a copy to another device never does."""
    WORKER = "worker"
    """In workers, also if that is slower. It is an error if a stage before it can't run there."""
    MAIN = "main"
    """In the main process, where UVA and CUDA copies are possible. All stages that follow run there as well."""
