import sys
from pathlib import Path

import pytest

from graphfeed.ops.optional import import_optional


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
