"""`graphfeed serve`: what it prints, and what it refuses."""

import signal
from pathlib import Path

import pytest

import graphfeed as gf
from graphfeed.__main__ import main
from tests import pipelines
from tests.distributed.ranks import start_program
from tests.distributed.served import TOKEN, arguments, loader, open_call, servers

pytest.importorskip("pyarrow")

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
from graphfeed.distributed import serve_command
from graphfeed.__main__ import main

def step(frame, event, _):
    waiting = frame.f_locals.get("self")
    if event == "line" and frame.f_code is threading.Event.wait.__code__ and waiting._cond._lock.locked():
        sys.settrace(None)
        frame.f_trace = None
        signal.raise_signal(signal.SIGTERM)
    return step

def trace(frame, event, _):
    return step if frame.f_back is not None and frame.f_back.f_code is serve_command.run.__code__ else None

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
        wrong = gf.DataLoader(pipelines.homogeneous(), 1, servers=[server.address], token="wrong", prefetch_factor=1)
        with wrong, pytest.raises(PermissionError, match="does not accept the token"):
            next(iter(wrong))
        lines = server.end()
        assert server.process.returncode == 0
    assert lines[0].startswith("refused: the loader's pipeline is another one than the server's: drop_last")
    assert lines[-2] == "refused: DO_GET without the right token"
    assert lines[-1] == "stopped after 10 mini-batches"


@pytest.mark.slow
@pytest.mark.parametrize("text", [INTERRUPTED, BETWEEN], ids=["to another thread", "between two steps of a wait"])
def test_a_signal_ends_it_whenever_it_comes(tmp_path: Path, text: str) -> None:
    program = start_program(text.format(arguments=arguments(tmp_path, "homogeneous")))
    try:
        assert program.wait(20), program.printed()
    finally:
        program.kill()
    assert program.printed().endswith("stopped after 0 mini-batches\n")


@pytest.mark.slow
def test_the_second_signal_ends_it_at_once_while_a_client_holds_a_call_open(tmp_path: Path) -> None:
    with servers(tmp_path, 1) as (server,), open_call(int(server.address.rpartition(":")[2])):
        server.process.send_signal(signal.SIGINT)
        assert server.process.stdout is not None
        assert server.process.stdout.readline() == "stopped after 0 mini-batches\n"
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        ("", [], "must set pipe to a pipeline of stages, but pipe is None"),
        ("pipe = 3", [], "must set pipe to a pipeline of stages, but pipe is 3"),
        ("", ["--bind", "5000"], "an address must be as"),
        ("", ["--tls-cert", "nothing.pem"], "go together"),
        ("from tests import pipelines; pipe = pipelines.shuffled()", ["--bind", "0.0.0.0:0"], "without TLS"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, arguments: list[str], reason: str
) -> None:
    (tmp_path / "pipeline.py").write_text(text)
    (tmp_path / "token").write_text(TOKEN)
    command = ["serve", str(tmp_path / "pipeline.py"), "--token-file", str(tmp_path / "token"), *arguments]
    assert main(command) == 1
    assert reason in capsys.readouterr().err
