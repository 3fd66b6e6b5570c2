"""Where a stage may run."""

import enum


class Placement(enum.Enum):
    """Where a stage may run: the values of `runs_in`. `DataLoader.explain()` shows where each stage actually runs.

    Set it in the class of a stage, or for a single stage by `pipe.transform(work).changed(runs_in=...)`.

    Example:
        >>> from graphfeed import Transform
        >>> class Report(Transform):
        ...     runs_in = Placement.MAIN
        ...     def __call__(self, minibatch):
        ...         print(minibatch.key.index)
        ...         return minibatch
    """

    AUTO = "auto"
    """Chosen by the loader: in workers, if all stages before it run there. A stage that reads features runs there only
    if workers can read them equally well, and a copy to another device never does."""
    WORKER = "worker"
    """In workers, even if that is slower. It is an error if a stage before it can't run there."""
    MAIN = "main"
    """In the main process, where UVA and CUDA copies are possible. All stages that follow run there as well."""
