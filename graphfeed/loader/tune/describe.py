"""What was chosen, measured and refused, as text."""

from graphfeed.loader.explain import bytes_text
from graphfeed.loader.tune.choice import Limits
from graphfeed.loader.tune.tuning import Tuning


def describe_tuning(tuning: Tuning) -> list[str]:
    """Return lines for `explain()`."""
    if not tuning.tried:
        return ['workers: num_workers="auto" measures in the first epoch; nothing was measured yet']
    state = tuning.settled or "so far; it is still measuring"
    lines = [f'workers: num_workers="auto" chose {tuning.best}: {state}']
    lines.append(f"  {'per second':>10}  {'waits':>5}  {'memory':>7}")
    for trial in tuning.tried:
        waits = f"{100 * trial.waits:.0f} %"
        lines.append(f"  {trial.rate:10.1f}  {waits:>5}  {bytes_text(trial.memory):>7}  {trial.choice}")
    limits = tuning.limits
    assert limits is not None
    lines += [
        f"  refused: {choice} would take {bytes_text(size)}, more than the {bytes_text(limits.memory)} of memory_limit"
        for choice, size in tuning.refused.items()
    ]
    return lines + describe_processes(limits)


def describe_processes(limits: Limits) -> list[str]:
    return [f"  refused: worker='process': {limits.no_processes}"] if limits.no_processes else []
