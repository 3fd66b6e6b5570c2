"""Names that the methods of graphs had, so that a graph of a user's own does not write one that nobody calls."""

FORMER_NAMES = {
    "sample_layers": "sample_hops",
    "sample_layers_jointly": "labor_sample_hops",
    "temporal_sample_layers": "temporal_sample_hops",
}


def check_former_names(cls: type) -> None:
    """Raise if a class overrides a method by its former name alone.

    Raises:
        TypeError: It does. The message has the new name.

    Example:
        >>> class Old:
        ...     sample_layers = None
        >>> check_former_names(Old)
        Traceback (most recent call last):
            ...
        TypeError: Old has sample_layers, which nobody calls; write sample_hops, which takes a SamplingRequest
    """
    for former, name in FORMER_NAMES.items():
        if former in vars(cls) and name not in vars(cls):
            raise TypeError(
                f"{cls.__name__} has {former}, which nobody calls; write {name}, which takes a SamplingRequest"
            )
