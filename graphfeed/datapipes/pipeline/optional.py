"""Packages that graphfeed can use and does not need."""

from importlib import import_module
from types import ModuleType


def import_optional(module: str, purpose: str, remedy: str) -> ModuleType:
    """Import a module that may be missing.

    Args:
        module: Its name.
        purpose: What needs it.
        remedy: How to get it.

    Raises:
        ImportError: Its package is not installed. What else goes wrong in its import comes out as it is.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ImportError(f"{purpose} needs {package}, which is not installed: {remedy}", name=package) from error
