"""Compiles all CPU kernels ahead of time, into a library in the package's folder, and makes a wheel with it.

This is the command `python -m graphfeed.build_kernels`. It needs Numba, and the linker of a C compiler named `cc`. With
the library, nothing is compiled at run time, and Numba is not imported. `--wheel` makes a wheel for this platform of
the pure Python wheel. Numba is not a dependency of that wheel, but its extra `compile`.
"""

import argparse
import base64
import csv
import hashlib
import io
import platform
import re
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from graphfeed.ops import load_kernels

PURE = "py3-none-any"
PACKAGE = Path(__file__).parent
LIBRARY_FOLDER = "graphfeed/ops/cpu"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m graphfeed.build_kernels", description=summary)
    parser.add_argument("--wheel", type=Path, help="a pure Python wheel of these sources")
    parser.add_argument("--out", type=Path, help="the folder for the new wheel; by default, that of the pure wheel")
    options = parser.parse_args(arguments)
    try:
        if options.wheel is None:
            said = str(build(None))
        else:
            with tempfile.TemporaryDirectory() as folder:
                said = str(make_wheel(options.wheel, build(Path(folder)), options.out or options.wheel.parent))
    except (OSError, RuntimeError, ValueError) as error:
        sys.stderr.write(f"graphfeed.build_kernels: {error}\n")
        return 1
    sys.stdout.write(f"{said}\n")
    return 0


def build(folder: Path | None) -> Path:
    """Return the library of the package if it is up to date; otherwise build it, in the package or another folder."""
    module = load_kernels("cpu", "compiler.build")
    found: Path | None = module.current_library()
    if found is None:
        found = module.build_library(*([] if folder is None else [folder]), note=show_progress)
        sys.stderr.write("\n")
    return found


def show_progress(done: int, total: int) -> None:
    sys.stderr.write(f"\rgraphfeed: {done} of {total} kernels compiled")
    sys.stderr.flush()


def platform_tag() -> str:
    """Return the tag of the wheels that have a library for this system and architecture."""
    machine = platform.machine().lower()
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc" and machine in ("x86_64", "aarch64"):
        return f"py3-none-manylinux_2_28_{machine}"
    if sys.platform == "darwin" and machine == "arm64":
        return "py3-none-macosx_11_0_arm64"
    raise ValueError(f"there are no wheels with a library of kernels for {sys.platform} on {machine}")


def make_wheel(pure: Path, library: Path, folder: Path) -> Path:
    """Write the wheel of this platform: the files of a pure wheel and the library, without Numba as a dependency.

    Raises:
        ValueError: The kernels in the wheel are not those that the library was built from.
    """
    if not pure.name.endswith(f"-{PURE}.whl"):
        raise ValueError(f"--wheel must be a wheel that ends with -{PURE}.whl, but is {pure}")
    tag = platform_tag()
    out = folder / pure.name.replace(PURE, tag)
    with zipfile.ZipFile(pure) as source:
        check_sources(source)
        files = {info.filename: (info, source.read(info)) for info in source.infolist()}
    about = next(name for name in files if name.endswith(".dist-info/RECORD")).removesuffix("RECORD")
    last, _ = files.pop(f"{about}RECORD")
    change(files, f"{about}WHEEL", "Root-Is-Purelib: true", "Root-Is-Purelib: false")
    change(files, f"{about}WHEEL", f"Tag: {PURE}", f"Tag: {tag}")
    change(files, f"{about}METADATA", "^Requires-Dist: numba[^;\n]*\n", "")
    added = zipfile.ZipInfo(f"{LIBRARY_FOLDER}/{library.name}", last.date_time)
    added.external_attr = 0o100644 << 16
    files[added.filename] = added, library.read_bytes()
    record = io.StringIO()
    lines = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(out, "w") as target:
        for info, content in files.values():
            target.writestr(info, content, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.writerow([info.filename, f"sha256={digest}", len(content)])
        lines.writerow([last.filename, "", ""])
        target.writestr(last, record.getvalue(), zipfile.ZIP_DEFLATED)
    return out


def change(files: dict[str, tuple[zipfile.ZipInfo, bytes]], name: str, pattern: str, text: str) -> None:
    """Replace the first match of a pattern in a file. Raises a ValueError if there is none."""
    info, content = files[name]
    changed, count = re.subn(pattern, text, content.decode(), count=1, flags=re.MULTILINE)
    if not count:
        raise ValueError(f"{name} in the wheel has no {pattern!r}")
    files[name] = info, changed.encode()


def check_sources(wheel: zipfile.ZipFile) -> None:
    """Raise a ValueError if the kernels in a wheel differ from those of this package, which are in the library."""
    folder, there = PACKAGE.parent, set(wheel.namelist())
    here = [PACKAGE / "ops" / "random.py", *(folder / LIBRARY_FOLDER).rglob("*.py")]
    names = {name for name in there if name.startswith(f"{LIBRARY_FOLDER}/")}
    # A file that the wheel lacks matters too: the names of functions have a digest of all files.
    for name in sorted(names | {path.relative_to(folder).as_posix() for path in here}):
        path = folder / name
        if name not in there or not path.is_file() or path.read_bytes() != wheel.read(name):
            raise ValueError(f"{name} in the wheel differs from {path}; build the wheel from these sources")


if __name__ == "__main__":
    sys.exit(main())
