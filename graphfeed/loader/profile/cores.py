"""How many cores are left for a loader, and who takes the others."""

from graphfeed.loader.profile.summary import Summary

A_THIRD = 1 / 3
"""From this share of the time on, waiting for a core is worth a word."""
NEARLY_ALL = 0.8
"""A loader that has so many of its cores waits for its own threads."""


def cores_are_short(summary: Summary) -> bool:
    # A third of two times: of that in which threads can run, and of all time.
    waiting = summary.cores_used * summary.core_wait / (1 - summary.core_wait)
    return min(summary.core_wait, waiting) >= A_THIRD


def cores_left(summary: Summary) -> float:
    setting = summary.setting
    allowed = min(setting.num_cores, setting.quota or setting.num_cores)
    if not cores_are_short(summary):
        return allowed
    return min(allowed, max(summary.cores_used, setting.num_cores * (1 - summary.core_wait)))


def rate_of_cores(summary: Summary) -> float:
    cpu_ms = sum(stage.ms * stage.cpu for stage in summary.stages)
    return 1000 * cores_left(summary) / max(cpu_ms, 1e-3)


def wanted_ms(summary: Summary) -> float:
    # How long workers run or wait for a core.
    return summary.worker_cpu_ms / (1 - summary.core_wait)


def use_cores(summary: Summary) -> bool:
    # Workers run, or could if they had a core, for most of their time.
    return wanted_ms(summary) > 0.5 * summary.worker_ms


def who_takes_cores(summary: Summary) -> str:
    """Say that threads wait for a core, and why, where it is not for each other; empty if they don't."""
    setting, left = summary.setting, cores_left(summary)
    waited = f"what could run waited {100 * summary.core_wait:.0f} % of the time for a core"
    if not cores_are_short(summary):
        return ""
    if setting.quota and summary.cores_used > NEARLY_ALL * setting.quota:
        return f"a quota allows {setting.quota:g} cores: {waited}"
    if left > NEARLY_ALL * setting.num_cores:
        return ""
    return f"other programs take the cores: {waited}, and {left:.1f} of {setting.num_cores} are left"
