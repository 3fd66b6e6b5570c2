"""`make exports`: add the names that each package imports to its `__all__`, and sort them."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

FILES = sorted((Path(__file__).resolve().parents[2] / "graphfeed").rglob("__init__.py"))
NAMES = re.compile(
    r"(?<=^# fmt: off\n__all__ = \[\n)[^]]*(?=^\]$)|(?<=^__all__ = \[\n)[^]]*(?=^\]  # fmt: skip$)", re.MULTILINE
)
"""The lists that `ruff format` leaves alone."""


def wrap(names: re.Match[str]) -> str:
    """Return the names of an `__all__` in lines of up to 120 columns. Ruff writes one name per line."""
    return textwrap.fill(" ".join(names[0].split()), 120, initial_indent="    ", subsequent_indent="    ") + "\n"


if __name__ == "__main__":
    options = ["--quiet", "--fix", "--preview", "--select", "F401,RUF022"]
    status = subprocess.run([sys.executable, "-m", "ruff", "check", *options, *FILES], check=False).returncode
    for file in FILES:
        file.write_text(NAMES.sub(wrap, file.read_text()))
    sys.exit(status)
