"""The user's main module, which worker processes import again unless it is a notebook or similar."""

import multiprocessing
import os
import sys
from pathlib import Path
from types import FunctionType, ModuleType

PREFIX = "graphfeed-"
"""Prefix of the names of worker processes."""
NO_GUARD = 86
"""Exit code of a worker that was about to start workers while it imported the main module."""
GUARD_ADVICE = (
    "worker processes import the main script again, and this one would start workers there too; put its main part "
    "under `if __name__ == '__main__':`"
)
TO_PRELOAD = "GRAPHFEED_PRELOAD"
"""Environment variable with the modules that the fork server imports for its workers."""
INSTALLED = {"site-packages", "dist-packages"}
"""Names of the folders of installed packages."""


class Imported:
    """Whether a worker process has imported the main module."""

    done = False


def check_main_module(start_method: str) -> None:
    """Raise if workers can't import the main module. In a worker that is just importing it, exit."""
    if multiprocessing.current_process().name.startswith(PREFIX) and not Imported.done:
        # Every worker would print an exception; the parent raises it once.
        os._exit(NO_GUARD)
    path = getattr(sys.modules["__main__"], "__file__", None) or ""
    if start_method != "fork" and path.startswith("<"):
        raise RuntimeError(
            f"worker processes import the main script again, but this program was read from {path.strip('<>')}; save "
            "it to a file and run that, or use threads: worker='thread'"
        )


def is_importable() -> bool:
    # A notebook or an interactive session has no main module that workers could import.
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return spec.name != "__main__" and not spec.name.endswith(".__main__")
    path = getattr(main, "__file__", None)
    return path is not None and os.path.splitext(os.path.basename(path))[0] != "ipython"


def installed_imports() -> list[str]:
    """Return the installed modules that the main module uses, directly or through the user's other modules."""
    waiting, seen, found = [sys.modules["__main__"]], {"__main__"}, []
    # The standard library is imported quickly, and this package is always imported.
    left_out = {*sys.stdlib_module_names, __name__.partition(".")[0]}
    while waiting:
        for value in list(vars(waiting.pop(0)).values()):
            kind = "__name__" if isinstance(value, ModuleType) else "__module__"
            name = getattr(value, kind, None) if isinstance(value, (ModuleType, type, FunctionType)) else None
            if not isinstance(name, str) or name in seen or name.partition(".")[0] in left_out:
                continue
            seen.add(name)
            module = sys.modules.get(name)
            if INSTALLED & set(Path(str(getattr(module, "__file__", None))).parts):
                found.append(name)
            elif isinstance(module, ModuleType):  # the user's, which may change while the fork server runs
                waiting.append(module)
    return found
