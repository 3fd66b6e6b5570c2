"""The user's main module, which worker processes import again unless it is a notebook or the like."""

import ast
import multiprocessing
import os
import sys
import threading
from pathlib import Path

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


def is_guarded() -> bool:
    """Tell whether what the main thread does now is done by the main script alone, not by workers that import it."""
    # That is so if the main script calls it under `if __name__ == "__main__":`.
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    main = vars(sys.modules["__main__"])
    while frame is not None and not (frame.f_code.co_name == "<module>" and frame.f_globals is main):
        frame = frame.f_back
    # Nothing is asked of a module without a file, such as a notebook, which workers don't import.
    if frame is None or not is_importable():
        return True
    try:
        program = ast.parse(Path(frame.f_code.co_filename).read_text())
    except (OSError, SyntaxError, ValueError):
        return True
    return any(
        isinstance(part, ast.If)
        and part.lineno <= frame.f_lineno <= (part.end_lineno or 0)
        and "__name__" in names(part)
        for part in program.body
    )


def names(part: ast.If) -> set[str]:
    """Return the names in a condition."""
    return {node.id for node in ast.walk(part.test) if isinstance(node, ast.Name)}
