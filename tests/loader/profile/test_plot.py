import sys

import pytest

from graphfeed.loader.profile import Profile
from tests.loader.profile.records import make_record


def test_the_plot_has_a_timeline_and_a_bar_for_each_stage() -> None:
    pytest.importorskip("matplotlib")
    profile = Profile()
    profile.records.append(make_record(40))
    timeline, bars = profile.plot(5).axes
    assert [label.get_text() for label in timeline.get_yticklabels()] == ["loop", "worker 1"]
    assert timeline.get_xlim() == (0, 4 * 5 + 4)  # five mini-batches, of which each takes 5 ms until the next one
    assert [patch.get_width() for patch in bars.patches] == [1, 5, 1]
    assert "<img" in profile._repr_html_()


def test_a_plot_of_nothing_is_refused() -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="nothing was measured"):
        Profile().plot()


def test_a_number_of_mini_batches_below_1_is_refused() -> None:
    with pytest.raises(ValueError, match="num_minibatches must be 1 or more, but is 0"):
        Profile().plot(0)


def test_notebooks_show_the_table_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    profile = Profile()
    profile.records.append(make_record(40))
    assert profile._repr_html_().startswith("<pre>Too few mini-batches")
    assert "<img" not in profile._repr_html_()
    with pytest.raises(ImportError, match=r"a plot of a profile needs matplotlib.*pip install matplotlib"):
        profile.plot()
