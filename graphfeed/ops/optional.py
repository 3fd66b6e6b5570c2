"""Packages that graphfeed can use but does not need."""

from importlib import import_module
from types import ModuleType


def import_optional(module: str, purpose: str, remedy: str) -> ModuleType:
    """Import a module whose package may be missing.

    Args:
        module: The name of the module.
        purpose: What needs the module, for the error message.
        remedy: How to install the package, for the error message.

    Raises:
        ImportError: The package is not installed. Any other error of the import is raised unchanged.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ImportError(f"{purpose} needs {package}, which is not installed: {remedy}", name=package) from error
