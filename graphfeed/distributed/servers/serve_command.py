"""Serves the mini-batches of a pipeline to loaders on other machines, until it is interrupted."""

import argparse
import os
import signal
import stat
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from runpy import run_path
from typing import Any

from graphfeed.datapipes import Datapipe
from graphfeed.distributed.servers.sampling_server import SamplingServer
from graphfeed.distributed.wire import check_token, parse_address
from graphfeed.loader.executors import summarise_error


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("pipeline", help="a Python file that sets pipe to the pipeline")
    parser.add_argument("--bind", default="127.0.0.1:0", metavar="HOST:PORT", help="port 0 selects a free port")
    parser.add_argument("--token-file", required=True, metavar="FILE", help="a file with a secret that loaders know")
    parser.add_argument("--tls-cert", metavar="FILE", help="the certificate chain as PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="the certificate's private key as PEM")
    parser.add_argument("--allow-plaintext", action="store_true", help="let other machines connect without TLS")
    parser.add_argument(
        "--health-bind", metavar="HOST:PORT", help="answer GET /health and GET /metrics there; off by default"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="number of mini-batches produced concurrently")


def run_serve(options: Any) -> None:
    """Serve until SIGINT or SIGTERM; print the address, then a line for each rejected or failed request."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise ValueError("--tls-cert and --tls-key go together; give both")
    host, port = parse_address(options.bind)
    health = None if options.health_bind is None else parse_address(options.health_bind)
    tls = None
    if options.tls_cert is not None:
        tls = Path(options.tls_cert).read_bytes(), read_secret(options.tls_key)
    try:
        token = check_token(read_secret(options.token_file).decode(errors="replace").strip())
    except ValueError as error:
        raise ValueError(f"--token-file {options.token_file}: {error}") from error
    pipe = run_pipeline(options.pipeline)
    options_of_server = {"tls": tls, "allow_plaintext": options.allow_plaintext, "num_workers": options.workers}
    with signals_noted() as signals, SamplingServer(pipe, host, port, token=token, **options_of_server) as server:
        server.on_event = say
        say(f"serving {pipe!r} at {server.address}")
        if health is not None:
            say(f"health and metrics at {server.serve_health(*health)}")
        while not signals:
            time.sleep(0.1)  # the system may deliver a signal to another thread, which does not wake this one
        say(f"stopped after {server.num_made} mini-batches")


@contextmanager
def signals_noted() -> Iterator[list[int]]:
    """Yield a list that receives the first SIGINT or SIGTERM within the block; a second one ends the process."""
    signals: list[int] = []  # not an Event: a signal may arrive while the main thread holds its lock

    def note(number: int, _: object) -> None:
        if signals:
            # At once, without waiting for requests in progress.
            os._exit(128 + number)
        signals.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def read_secret(path: str) -> bytes:
    mode = Path(path).stat().st_mode
    if os.name == "posix" and stat.S_ISREG(mode) and mode & 0o077:
        # Not an error, because mounted files may have fixed permissions.
        sys.stderr.write(f"graphfeed serve: others on this machine may read {path}; chmod 600 {path} prevents it\n")
    return Path(path).read_bytes()


def run_pipeline(path: str) -> Datapipe:
    """Run a Python file, and return the pipeline that it sets."""
    try:
        pipe = run_path(path).get("pipe")
    except Exception as error:
        frames = error.__traceback__
        # Show only the frames of the user's file and of the functions that it calls.
        while frames is not None and frames.tb_frame.f_code.co_filename != path:
            frames = frames.tb_next
        if frames is None and not isinstance(error, SyntaxError):
            raise  # the file itself can't be read
        text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
        raise ValueError(f"{path} can't be run: {summarise_error(error)}\n{text}") from error
    if not isinstance(pipe, Datapipe):
        raise ValueError(f"{path} must set pipe to a pipeline of stages, but pipe is {pipe!r}")
    return pipe


def say(event: str) -> None:
    # Always on one line.
    sys.stdout.write(" ".join(event.split()) + "\n")
    sys.stdout.flush()
