"""`graphfeed serve`: its output and its errors."""

import errno
import os
import signal
from pathlib import Path

import pytest

import graphfeed as gf
from graphfeed.__main__ import main
from graphfeed.distributed.wire import listen
from tests.kinds import pipelines
from tests.stand_ins.programs import start_program
from tests.stand_ins.served import TOKEN, arguments, loader, open_call, servers
from tests.stand_ins.waiting import wait_until

pytest.importorskip("pyarrow")

PIPE = "from tests.kinds import pipelines; pipe = pipelines.shuffled()"

ANOTHER = "refused: the pipelines of the loader and of the server differ"

INTERRUPTED = """
import signal, sys, threading, time
from graphfeed.__main__ import main

def interrupt():
    while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        time.sleep(0.05)
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

threading.Thread(target=interrupt).start()
sys.exit(main({arguments}))
"""


BETWEEN = """
import signal, sys, threading
from graphfeed.distributed.servers import serve_command
from graphfeed.__main__ import main

def step(frame, event, _):
    waiting = frame.f_locals.get("self")
    if event == "line" and frame.f_code is threading.Event.wait.__code__ and waiting._cond._lock.locked():
        sys.settrace(None)
        frame.f_trace = None
        signal.raise_signal(signal.SIGTERM)
    return step

def trace(frame, event, _):
    return step if frame.f_back is not None and frame.f_back.f_code is serve_command.run_serve.__code__ else None

def interrupt():
    while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        time.sleep(0.05)
    time.sleep(1)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

import time
threading.Thread(target=interrupt, daemon=True).start()
sys.settrace(trace)
sys.exit(main({arguments}))
"""


@pytest.mark.slow
def test_it_prints_its_address_and_a_line_for_each_event(tmp_path: Path) -> None:
    with servers(tmp_path, 1) as (server,):
        with loader(pipelines.homogeneous(), [server.address]) as own:
            assert len(list(own)) == 10
        with loader(pipelines.shuffled(), [server.address]) as other, pytest.raises(ValueError, match="drop_last"):
            next(iter(other))
        wrong = gf.DataLoader(
            pipelines.homogeneous(), 1, executor=gf.SamplingServers([server.address], token="wrong"), prefetch_factor=1
        )
        with wrong, pytest.raises(PermissionError, match="does not accept the token"):
            next(iter(wrong))
        lines = server.end()
        assert server.process.returncode == 0
    # In any order: requests that readers left are rejected later, and the compiler may report its work.
    assert any(line.startswith(f"{ANOTHER}: drop_last") for line in lines)
    assert "refused: DO_GET without the right token" in lines
    assert "stopped after 10 mini-batches" in lines


@pytest.mark.slow
@pytest.mark.parametrize("text", [INTERRUPTED, BETWEEN], ids=["to another thread", "between two steps of a wait"])
def test_a_signal_ends_it_whenever_it_comes(tmp_path: Path, text: str) -> None:
    program = start_program(text.format(arguments=arguments(tmp_path, "homogeneous")))
    try:
        assert program.wait(60), program.printed()
    finally:
        program.kill()
    assert program.printed().endswith("stopped after 0 mini-batches\n")


@pytest.mark.slow
def test_the_second_signal_ends_it_at_once_while_a_client_holds_a_call_open(tmp_path: Path) -> None:
    with servers(tmp_path, 1) as (server,), open_call(int(server.address.rpartition(":")[2])):
        server.process.send_signal(signal.SIGINT)
        wait_until(lambda: server.process.printed().endswith("stopped after 0 mini-batches\n"))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60)
        assert server.process.returncode == 128 + signal.SIGTERM


WRONG: list[tuple[str, list[str], str]] = [
    ("", [], "must set pipe to a pipeline of stages, but pipe is None"),
    ("pipe = 3", [], "must set pipe to a pipeline of stages, but pipe is 3"),
    ("", ["--bind", "5000"], "an address must be like"),
    ("", ["--tls-cert", "nothing.pem"], "go together"),
    (PIPE, ["--bind", "0.0.0.0:0"], "without TLS"),
    (PIPE, ["--bind", "192.0.2.1:0", "--allow-plaintext"], "can't listen on 192.0.2.1:0: "),
    (PIPE, ["--bind", "nowhere.invalid:5", "--allow-plaintext"], "can't listen on nowhere.invalid:5: "),
    (PIPE, ["--token-file", os.devnull], f"--token-file {os.devnull}: token must be a string of printable ASCII"),
    (PIPE, ["--token-file", "nothing"], "No such file or directory: 'nothing'"),
]


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, given, reason in WRONG:
        assert main(command(tmp_path, text, *given)) == 1
        said = capsys.readouterr().err
        assert reason in said
        assert said.count("\n") == 1


def command(folder: Path, text: str, *arguments: str) -> list[str]:
    """Return the command that serves a pipeline."""
    script, token = folder / "pipeline.py", folder / "token"
    script.write_text(text)
    token.write_text(TOKEN)
    token.chmod(0o600)
    return ["serve", str(script), "--token-file", str(token), *arguments]


RAISING = [
    ("x = 1\nraise ValueError('mine')", "ValueError: mine", 'pipeline.py", line 2, in <module>'),
    ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'", "import no_such_module"),
    ("import json\n\njson.loads('')", "JSONDecodeError: Expecting value", "json.loads('')"),
    ("x = = 1", "SyntaxError: invalid syntax (pipeline.py, line 1)", "x = = 1"),
]


def test_a_file_that_raises_is_shown_where_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, error, line in RAISING:
        assert main(command(tmp_path, text)) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"graphfeed serve: {tmp_path}/pipeline.py can't be run: {error}")
        assert line in said
        assert "runpy" not in said


def test_a_port_that_is_taken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with listen("127.0.0.1", 0) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for option in ("--bind", "--health-bind"):
            assert main(command(tmp_path, PIPE, option, address)) == 1
            assert f"can't listen on {address}: [Errno {errno.EADDRINUSE}]" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_a_secret_that_others_may_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = command(tmp_path, "")
    for mode in (0o640, 0o604):
        (tmp_path / "token").chmod(mode)
        assert main(arguments) == 1
        assert f"others on this machine may read {tmp_path}/token; chmod 600" in capsys.readouterr().err
