"""What a forked process makes anew, because it has no thread but the one that forked."""

import os
from collections.abc import Callable


def after_fork_in_child(function: Callable[[], None]) -> Callable[[], None]:
    """Let a function run in every process that is forked from this one, before anything else happens there.

    It replaces locks, which nobody there releases if another thread held them, and closes what belongs to the parent.

    Example:
        >>> @after_fork_in_child
        ... def close_what_the_parent_owns() -> None: ...
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
    return function
