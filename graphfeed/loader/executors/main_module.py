"""The user's main module, which worker processes import again unless it is a notebook or the like."""

import multiprocessing
import os
import sys
from pathlib import Path
from types import FunctionType, ModuleType

PREFIX = "graphfeed-"
"""The names of worker processes begin with it."""
NO_GUARD = 86
"""The exit code of a worker that was about to start workers while it imported the main module."""
GUARD_ADVICE = (
    "worker processes import the main script again, and this one would start workers there too; put its main part "
    "under `if __name__ == '__main__':`"
)
TO_PRELOAD = "GRAPHFEED_PRELOAD"
"""The environment variable with the modules that the fork server imports for its workers."""
INSTALLED = {"site-packages", "dist-packages"}
"""The names of the folders of installed packages."""


class Imported:
    """Whether a worker process has imported the main module."""

    done = False


def check_main_module(start_method: str) -> None:
    """Raise if workers can't import the main module. In a worker that imports it at this moment, exit."""
    if multiprocessing.current_process().name.startswith(PREFIX) and not Imported.done:
        # An exception would be printed by each worker; the parent says what is wrong once.
        os._exit(NO_GUARD)
    path = getattr(sys.modules["__main__"], "__file__", None) or ""
    if start_method != "fork" and path.startswith("<"):
        raise RuntimeError(
            f"worker processes import the main script again, but this program was read from {path.strip('<>')}; save "
            "it to a file and run that, or use threads: worker='thread'"
        )


def is_importable() -> bool:
    # In a notebook or an interactive session there is no main module that workers could import.
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return spec.name != "__main__" and not spec.name.endswith(".__main__")
    path = getattr(main, "__file__", None)
    return path is not None and os.path.splitext(os.path.basename(path))[0] != "ipython"


def installed_imports() -> list[str]:
    """Return the installed modules that are bound in the main module, or in modules of the user's that are."""
    waiting, seen, found = [sys.modules["__main__"]], {"__main__"}, []
    # The standard library is quickly imported, and this package imported anyway.
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
            elif isinstance(module, ModuleType):  # of the user's, which may change while the fork server lives
                waiting.append(module)
    return found
