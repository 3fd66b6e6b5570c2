"""The user's main module, which worker processes import again unless it is a notebook or the like."""

import multiprocessing
import os
import sys

PREFIX = "graphfeed-"
"""The names of worker processes begin with it."""
NO_GUARD = 86
"""The exit code of a worker that was about to start workers while it imported the main module."""
GUARD_ADVICE = (
    "worker processes import the main script again, and this one would start workers there too; put its main part "
    "under `if __name__ == '__main__':`"
)


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
