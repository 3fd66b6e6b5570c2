"""The wheel of a platform, which is made of a pure wheel and a library of kernels."""

import base64
import csv
import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from graphfeed import build_kernels
from graphfeed.build_kernels import PACKAGE, main, make_wheel, platform_tag

ABOUT = "graphfeed-9.9.dist-info"
METADATA = """Metadata-Version: 2.4
Requires-Dist: numba<0.69,>=0.60
Requires-Dist: numpy>=2
Provides-Extra: compile
Requires-Dist: numba<0.69,>=0.60; extra == 'compile'

Requires-Dist: numba is what this page says.
"""
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
KERNEL = "graphfeed/ops/cpu/rows/gather.py"


@pytest.fixture
def parts() -> dict[str, str]:
    """Return the files of a pure wheel."""
    paths = [PACKAGE / "ops" / "random.py", *sorted((PACKAGE / "ops" / "cpu").rglob("*.py"))]
    kernels = {path.relative_to(PACKAGE.parent).as_posix(): path.read_text() for path in paths}
    return {**kernels, f"{ABOUT}/METADATA": METADATA, f"{ABOUT}/WHEEL": WHEEL, f"{ABOUT}/RECORD": "old"}


def write(folder: Path, parts: dict[str, str], name: str = "graphfeed-9.9-py3-none-any.whl") -> Path:
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for part, text in parts.items():
            wheel.writestr(part, text)
    return folder / name


@pytest.fixture
def library(tmp_path: Path) -> Path:
    try:
        platform_tag()
    except ValueError:
        pytest.skip("there are no wheels for this platform")
    path = tmp_path / "kernels.so.1234"
    path.write_bytes(b"machine code")
    return path


def test_it_adds_the_library_and_makes_numba_an_extra(tmp_path: Path, parts: dict[str, str], library: Path) -> None:
    path = make_wheel(write(tmp_path, parts), library, tmp_path)
    assert path.name == f"graphfeed-9.9-{platform_tag()}.whl"
    with zipfile.ZipFile(path) as wheel:
        found = {name: wheel.read(name) for name in wheel.namelist()}
        assert wheel.testzip() is None
        assert wheel.getinfo("graphfeed/ops/cpu/kernels.so.1234").external_attr >> 16 == 0o100644
    assert found.keys() == {*parts, "graphfeed/ops/cpu/kernels.so.1234"}
    assert found["graphfeed/ops/cpu/kernels.so.1234"] == b"machine code"
    assert found[KERNEL].decode() == parts[KERNEL]
    assert found[f"{ABOUT}/METADATA"].decode() == METADATA.replace("Requires-Dist: numba<0.69,>=0.60\n", "", 1)
    wanted = WHEEL.replace("true", "false").replace("py3-none-any", platform_tag())
    assert found[f"{ABOUT}/WHEEL"].decode() == wanted
    record = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(found[f"{ABOUT}/RECORD"].decode()))}
    assert record.pop(f"{ABOUT}/RECORD") == ("", "")
    assert record == {
        name: (f"sha256={base64.urlsafe_b64encode(hashlib.sha256(own).digest()).decode().rstrip('=')}", str(len(own)))
        for name, own in found.items()
        if name != f"{ABOUT}/RECORD"
    }


def test_the_same_parts_make_the_same_bytes(tmp_path: Path, parts: dict[str, str], library: Path) -> None:
    pure = write(tmp_path, parts)
    first = make_wheel(pure, library, tmp_path).read_bytes()
    assert make_wheel(pure, library, tmp_path).read_bytes() == first


@pytest.mark.parametrize("change", ["text", "missing here", "missing there", "name"])
def test_a_wheel_of_other_kernels_or_with_binaries_is_an_error(
    tmp_path: Path, parts: dict[str, str], library: Path, change: str
) -> None:
    name, message = "graphfeed-9.9-py3-none-any.whl", "differs from .*; build the wheel from these sources"
    if change == "text":
        parts[KERNEL] += "\n"
    elif change == "missing here":
        parts["graphfeed/ops/cpu/rows/other.py"] = ""
    elif change == "missing there":
        del parts[KERNEL]
    else:
        name, message = "graphfeed-9.9-py3-none-win_amd64.whl", "must be a wheel that ends with -py3-none-any.whl"
    with pytest.raises(ValueError, match=message):
        make_wheel(write(tmp_path, parts, name), library, tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".1234", ".whl"}
    assert len(list(tmp_path.glob("*.whl"))) == 1


def test_the_command_prints_the_wheel_and_names_what_is_wrong(
    tmp_path: Path,
    parts: dict[str, str],
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(build_kernels, "build", lambda _: library)
    pure = write(tmp_path, parts)
    (tmp_path / "out").mkdir()
    assert main(["--wheel", str(pure), "--out", str(tmp_path / "out")]) == 0
    (made,) = (tmp_path / "out").iterdir()
    assert capsys.readouterr().out == f"{made}\n"
    assert main([]) == 0
    assert capsys.readouterr().out == f"{library}\n"
    assert main(["--wheel", str(tmp_path / "missing.whl")]) == 1
    assert capsys.readouterr().err.startswith("graphfeed.build_kernels: --wheel must be a wheel that ends with ")
