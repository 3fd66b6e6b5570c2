"""Packages that graphfeed can use but does not need."""

import sys
import warnings
from importlib import import_module
from types import ModuleType

from graphfeed.ops.forks import ForkLock

IMPORTED: dict[str, ModuleType] = {}
LOCK = ForkLock()


def import_optional(module: str, purpose: str, remedy: str) -> ModuleType:
    """Import a module whose package may be missing; warnings of the import are not shown.

    Args:
        module: The name of the module.
        purpose: What needs the module, for the error message.
        remedy: How to install the package, for the error message.

    Raises:
        ImportError: The package is not installed. Any other error of the import is raised unchanged.
    """
    known = IMPORTED.get(module)
    # What is in sys.modules alone may be half imported, by another thread.
    if known is not None and sys.modules.get(module) is known:
        return known
    try:
        # All threads have the same filters of warnings: two that changed them at once would leave wrong ones behind.
        with LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            IMPORTED[module] = found = import_module(module)
            return found
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ImportError(f"{purpose} needs {package}, which is not installed: {remedy}", name=package) from error


def install_hint(extra: str) -> str:
    """Return how to install an extra of graphfeed, for error messages. It names a clone because no release has it yet.

    Example:
        >>> install_hint("arrow")
        'pip install ".[arrow]" in a clone of graphfeed'
    """
    return f'pip install ".[{extra}]" in a clone of graphfeed'
