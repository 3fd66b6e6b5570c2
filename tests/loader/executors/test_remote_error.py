import copyreg
import pickle

import pytest

from graphfeed.loader.executors.remote_error import RemoteError


@pytest.fixture(autouse=True)
def plain_pickling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away other packages' ways to pickle exceptions: an engine that a test imported may have registered some."""
    for kind in (NeedsTwo, Speechless, Leaver, Pretender):
        monkeypatch.delitem(copyreg.dispatch_table, kind, raising=False)


class NeedsTwo(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_type_arguments_notes_and_traceback_survive() -> None:
    error = raised(KeyError("a", 1))
    error.add_note("where")
    unpacked = pickle.loads(pickle.dumps(RemoteError.of(error))).unpack()
    assert type(unpacked) is KeyError
    assert unpacked.args == ("a", 1)
    assert unpacked.__notes__ == ["where"]
    assert "in raised" in str(unpacked.__cause__)


def test_one_that_does_not_unpickle_is_told_by_a_runtime_error() -> None:
    error = raised(NeedsTwo(1, 2))
    error.add_note("where")
    unpacked = RemoteError.of(error).unpack()
    assert type(unpacked) is RuntimeError
    assert str(unpacked) == "NeedsTwo: 1 and 2"
    assert unpacked.__notes__ == ["where"]


class Speechless(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)

    def __str__(self) -> str:
        raise ValueError("no text")


def test_one_without_a_text_is_told_by_its_type() -> None:
    assert "Speechless, which raises" in str(RemoteError.of(Speechless(1, 2)).unpack())


class Leaver(Exception):
    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("raise SystemExit",)


class Pretender(Exception):
    def __reduce__(self) -> tuple[object, ...]:
        return str, ("no exception",)


def test_unpacking_never_raises() -> None:
    assert str(RemoteError.of(Leaver("left")).unpack()) == "Leaver: left"
    assert str(RemoteError.of(Pretender("meant")).unpack()) == "Pretender: meant"
