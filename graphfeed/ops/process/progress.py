"""How long a step that is done once per graph or per data set will take."""

from tqdm import tqdm


class ProgressBar(tqdm):  # type: ignore[misc]  # tqdm has no types
    """A progress bar without tqdm's monitor, a thread that would stay until the end of the program.

    The monitor redraws bars that wait for more steps than come. These look at the clock at each update instead.
    """

    monitor_interval = 0


def progress_bar(name: str, total: int | None, unit: str, *, wanted: bool = True) -> ProgressBar:
    """Return a progress bar, which appears after a second, and only in a terminal; never if it is not wanted."""
    return ProgressBar(
        desc=name,
        total=total,
        unit=unit,
        unit_scale=True,
        disable=None if wanted else True,
        delay=1,
        dynamic_ncols=True,
        miniters=0,
    )
