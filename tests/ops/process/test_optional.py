import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graphfeed.ops.process import import_optional


def test_what_is_there_is_imported() -> None:
    assert import_optional("os.path", "joining", "reinstall").join("a", "b") == "a/b"


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.data"])
def test_what_is_missing_is_named_with_its_purpose_and_remedy(module: str) -> None:
    with pytest.raises(
        ImportError, match=r"^drawing needs no_such_package, which is not installed: pip install it$"
    ) as caught:
        import_optional(module, "drawing", "pip install it")
    assert caught.value.name == "no_such_package"


def test_what_fails_for_another_reason_says_so_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_there.py").write_text("import no_such_package")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'"):
        import_optional("half_there", "drawing", "pip install it")


def test_what_is_warned_of_on_import_is_kept_from_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "warns_on_import.py").write_text("import warnings\nwarnings.warn('old', DeprecationWarning)")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = list(warnings.filters)
    assert import_optional("warns_on_import", "drawing", "pip install it").warnings is warnings
    assert warnings.filters == before


def test_threads_wait_for_a_whole_module_and_leave_the_filters_of_warnings_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("left_half", "right_half"):
        (tmp_path / f"{name}.py").write_text("from time import sleep\nsleep(0.1)\nwhole = True")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = list(warnings.filters)

    def find(name: str) -> bool:
        return bool(import_optional(name, "drawing", "pip install it").whole)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(find, ["left_half", "right_half"] * 2)) == [True] * 4
    assert warnings.filters == before
