import io
import threading

import pytest

from graphfeed.ops.process import progress


class Terminal(io.StringIO):
    """Text that says it is shown to somebody."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("to", "wait", "shown"), [(Terminal, 2, True), (Terminal, 0, False), (io.StringIO, 2, False)])
def test_it_appears_after_a_second_and_only_in_a_terminal(
    to: type[io.StringIO], wait: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, now = to(), [0.0]
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    with progress.progress_bar("adding", 10, "edge") as bar:
        for _ in range(10):
            now[0] += wait / 10
            bar.update(1)
    assert ("adding" in out.getvalue()) == shown


def test_it_is_redrawn_though_steps_come_more_slowly_and_no_thread_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    out, now, threads = Terminal(), [0.0], threading.enumerate()
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    with progress.progress_bar("adding", 2000, "edge") as bar:
        for steps in (1000, 980, 20):
            now[0] += 2
            bar.update(steps)
        assert "100%" in out.getvalue()
        assert threading.enumerate() == threads


def test_one_that_is_not_wanted_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    assert progress.progress_bar("adding", 2, "edge", wanted=False).disable
