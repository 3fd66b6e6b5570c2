import signal
import tomllib
from pathlib import Path

import pytest
import torch

from graphfeed.__main__ import COMMANDS, main
from graphfeed.distributed import open_part
from tests.distributed import graphs
from tests.scripts import run


def test_commands_are_listed_with_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "ingest Makes a data set of tables" in text
    assert "partition Partitions a graph in files, with its features" in text
    assert "serve Serves the mini-batches of a pipeline" in text
    assert list(COMMANDS) == ["doctor", "ingest", "inspect", "partition", "reorder", "serve", "warm-up"]


@pytest.mark.slow
def test_it_runs_as_a_module(tmp_path: Path) -> None:
    graphs.plain().save(tmp_path / "graph")
    done = run("-m", "graphfeed", "partition", "graph", "parts", "--parts", "2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "100 nodes and 700 edges" in done.stdout
    assert open_part(tmp_path / "parts", 1).graph.book.num_parts == 2


def test_the_script_of_the_package_is_the_same() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"graphfeed": "graphfeed.__main__:main"}


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", str(tmp_path / "nothing"), str(tmp_path / "parts"), "--parts", "2"]) == 1
    assert capsys.readouterr().err.startswith("graphfeed partition: ")
    torch.save(torch.zeros(3), tmp_path / "tensor")
    assert main(["partition", str(tmp_path / "tensor"), str(tmp_path / "parts"), "--parts", "2"]) == 1
    assert "holds no graph that can be read" in capsys.readouterr().err


def test_an_interruption_while_commands_are_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("graphfeed.__main__.import_module", lambda _: signal.raise_signal(signal.SIGINT))
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "graphfeed: interrupted\n"
