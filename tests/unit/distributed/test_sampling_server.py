"""A server in this process: requests that it answers or rejects, and its errors."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphfeed as gf
from graphfeed.distributed import SamplingServer
from graphfeed.distributed.wire import FlightServer, import_flight, listen
from graphfeed.testing import limits
from tests.kinds import pipelines
from tests.kinds.digests import digests
from tests.kinds.refusals import check_refused
from tests.stand_ins.programs import run_body
from tests.stand_ins.served import Fails, Held, make_certificate

pytest.importorskip("pyarrow")

TOKEN = "secret"


@pytest.fixture
def held() -> Iterator[gf.Datapipe]:
    Held.go.clear()
    yield Held(pipelines.shuffled())
    Held.go.set()


@pytest.fixture(scope="module")
def server() -> Iterator[SamplingServer]:
    with SamplingServer(pipelines.shuffled(), token=TOKEN) as server:
        yield server


def read(pipe: gf.Datapipe, server: SamplingServer, token: str = TOKEN) -> list[str]:
    with gf.DataLoader(pipe, executor=gf.SamplingServers([server.address], token=token), seed=3) as loader:
        return digests(loader)


def test_mini_batches_are_those_of_one_machine() -> None:
    for build in pipelines.ALL:
        pipe = build()
        with SamplingServer(pipe, token=TOKEN) as server:
            assert read(pipe, server) == digests(gf.DataLoader(pipe, num_workers=0, seed=3)), build.__name__


def test_rows_on_disk_are_read_here_for_windows_of_what_the_server_samples(tmp_path: Path) -> None:
    np.save(tmp_path / "feat.npy", np.random.default_rng(0).random((pipelines.NUM_NODES, 3)))
    store = gf.BasicFeatureStore({("node", None, "feat"): gf.DiskBasedFeature(tmp_path / "feat.npy")})
    pipe = pipelines.shuffled().fetch_feature(store, node_feature_keys=["feat"])
    expected = digests(gf.DataLoader(pipe, num_workers=0, seed=3, window=0))
    with (
        SamplingServer(pipe, token=TOKEN) as server,
        gf.DataLoader(pipe, executor=gf.SamplingServers([server.address], token=TOKEN), seed=3, window=4) as loader,
    ):
        assert "fetch_in_windows" in loader.explain()
        assert digests(loader) == digests(loader.plan.written.with_seed(3)) == expected


def test_each_rank_gets_its_own(no_leaks: None) -> None:
    items = gf.ItemSet(torch.arange(100), names="seeds")
    with SamplingServer(gf.DistributedItemSampler(items, 8, shuffle=True).transform(), token=TOKEN) as server:
        for rank in range(3):
            pipe = gf.DistributedItemSampler(items, 8, shuffle=True, rank=rank, world_size=3).transform()
            assert read(pipe, server) == digests(gf.DataLoader(pipe, num_workers=0, seed=3))


def test_an_epoch_is_resumed_where_it_was_left(server: SamplingServer) -> None:
    pipe = pipelines.shuffled()
    expected = digests(gf.DataLoader(pipe, num_workers=0, seed=3))
    with gf.DataLoader(pipe, executor=gf.SamplingServers([server.address], token=TOKEN), seed=3) as loader:
        left = iter(loader)
        first = digests(next(left) for _ in range(4))
        state = loader.state_dict()
    with gf.DataLoader(pipe, executor=gf.SamplingServers([server.address], token=TOKEN)) as loader:
        loader.load_state_dict(state)
        assert first + digests(loader) == expected


def test_a_wrong_token_is_refused(server: SamplingServer) -> None:
    pipe = pipelines.shuffled()
    check_refused(
        [
            (lambda: read(pipe, server, ""), ValueError, "token"),
            (lambda: read(pipe, server, "Secret"), PermissionError, "token"),
            (lambda: read(pipe, server, "secret2"), PermissionError, "token"),
        ]
    )


def test_readers_of_another_format_are_told_so(server: SamplingServer) -> None:
    flight = import_flight()
    later, token = (b"graphfeed-format", b"4"), (b"authorization", f"Bearer {TOKEN}".encode())
    for there, headers in ((1, [token]), (4, [token, later])):
        error = rf"mini-batch format {there}, and this side format 3; install the same release"
        options = flight.FlightCallOptions(timeout=10, headers=headers)
        with flight.FlightClient(f"grpc://{server.address}") as client, pytest.raises(flight.FlightError, match=error):
            client.do_get(flight.Ticket(b"about [0, 1]"), options).read_chunk()


def test_the_server_whose_answer_cannot_be_read_is_named() -> None:
    table = pytest.importorskip("pyarrow").table({"a": [1]})
    stream = import_flight().RecordBatchStream
    server: Any = FlightServer("127.0.0.1", 0, TOKEN, None, lambda *_: None, do_get=lambda *_: stream(table))
    error = f"the response of the sampling server {server.address} can't be read: this is not a message"
    with pytest.raises(ValueError, match=re.escape(error)):
        read(pipelines.shuffled(), server)
    server.close()


def test_another_pipeline_is_refused_by_the_field_that_differs(server: SamplingServer) -> None:
    events: list[str] = []
    server.on_event = events.append
    with pytest.raises(ValueError, match="and of the server differ: drop_last of stage 1 ItemSampler is False in it"):
        read(pipelines.homogeneous(), server)
    assert events
    assert events[0].startswith("refused: the pipelines of the loader and of the server differ")


def data_of(graph: int, feature: int, seeds: int) -> gf.Datapipe:
    """Return a pipeline over data of one size, whose content depends on a number."""
    edges = gf.from_coo(((torch.arange(60) + graph) % 20, torch.arange(60) % 20), 20)
    store = gf.BasicFeatureStore({("node", None, "x"): gf.TorchBasedFeature(torch.full((20, 2), feature))})
    pipe = gf.ItemSampler(gf.ItemSet(torch.arange(seeds, 10 + seeds), names="seeds"), 4).sample_neighbor(edges, [2])
    return pipe.fetch_feature(store, ["x"])


def test_servers_with_other_data_of_the_same_size_are_refused() -> None:
    whole = data_of(0, 0, 0)
    with SamplingServer(whole, token=TOKEN) as server:
        assert len(read(data_of(0, 0, 0), server)) == 3
        for number, what in enumerate(("graph", "node x", "item_set")):
            with pytest.raises(ValueError, match=rf"{what} \(checksum\) of stage \d \w+ is \w+ in it, but \w+ here"):
                read(data_of(*(int(number == place) for place in range(3))), server)


def test_readers_with_another_release_are_told_so(server: SamplingServer) -> None:
    error = f"the loader has graphfeed 0.0.9, and the server {gf.__version__}; install the same release on both"
    cut: dict[str, Any] = {"fingerprint": {"1 ItemSampler": {}}, "streams": [], "rank": None, "release": "0.0.9"}
    events: list[str] = []
    server.on_event = events.append
    server.answer(f"{json.dumps(cut)}\n[0, 0, 0, 0]".encode(), lambda: False)
    assert events == [f"refused: {error}"]


def test_the_error_of_a_stage_is_raised_in_the_place_of_its_mini_batch() -> None:
    pipe = Fails(pipelines.homogeneous())
    made: list[str] = []
    with SamplingServer(pipe, token=TOKEN) as server:
        loader = gf.DataLoader(pipe, executor=gf.SamplingServers([server.address], token=TOKEN), seed=3)
        with loader, pytest.raises(RuntimeError, match="ValueError: there is no such xxx") as caught:
            made.extend(digests(loader))
    notes = " ".join(caught.value.__notes__)
    assert "in Fails, stage 4, mini-batch 2 of epoch 0" in notes
    assert "a note" in notes
    assert f"on the sampling server {server.address}" in notes
    assert "Traceback" in str(caught.value.__cause__)


def test_requests_whose_reader_has_given_up_are_not_made(held: gf.Datapipe) -> None:
    with SamplingServer(held, token=TOKEN, num_workers=1) as server:
        loader = gf.DataLoader(held, 4, executor=gf.SamplingServers([server.address], token=TOKEN), seed=3, timeout=0.5)
        with loader, pytest.raises(ConnectionError, match=r"no response for 0\.5 s"):
            list(loader)
        Held.go.set()
        assert len(read(held, server)) == 9
        assert server.num_made == 1 + 9


@limits(waiting_requests=2)
def test_no_more_than_some_requests_wait(held: gf.Datapipe) -> None:
    events: list[str] = []

    def note(event: str) -> None:
        events.append(event)
        Held.go.set()

    with SamplingServer(held, token=TOKEN, num_workers=1) as server:
        server.on_event = note
        # With patience, the rejected one would be requested again, because others are answered in the meantime.
        executor = gf.SamplingServers([server.address], TOKEN, patience=0)
        loader = gf.DataLoader(held, 8, executor=executor, seed=3)
        with loader, pytest.raises(ConnectionError, match="2 requests are waiting already"):
            list(loader)
    assert events[0] == "refused: 2 requests are waiting already"


def test_an_event_handler_that_raises_changes_no_answer(
    server: SamplingServer, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(event: str) -> None:
        raise OSError(f"no disk for {event}")

    server.on_event = fail
    with pytest.raises(ValueError, match="drop_last of stage 1"):
        read(pipelines.homogeneous(), server)
    with pytest.raises(PermissionError, match="does not accept the token"):
        read(pipelines.shuffled(), server, "wrong")
    assert "OSError: no disk for refused: the pipelines of the loader" in capfd.readouterr().err


def test_what_readers_write_is_told_in_one_line_that_prints(server: SamplingServer) -> None:
    events: list[str] = []
    server.on_event = events.append
    fields: dict[str, object] = {
        "fingerprint": {"1 \x1b[2J\nrefused: " + "x" * 5000: {}},
        "streams": [],
        "rank": None,
        "release": gf.__version__,
    }
    server.answer(json.dumps(fields).encode() + b"\n[0, 0, 0, 0]", lambda: False)
    server.answer(b"[" * 100_000, lambda: False)
    assert len(events[0]) < 1010
    assert "1 \\x1b[2J refused: xxx" in events[0]
    assert events[1] == f"refused: not a ticket for a mini-batch: {b'[' * 80!r}"


@pytest.mark.slow
def test_a_server_and_its_program_end_while_a_client_holds_a_call_open() -> None:
    ended = run_body(
        """
        from graphfeed.distributed.servers import sampling_server
        from graphfeed.ops.process import Limits, set_limits
        from tests.stand_ins.served import open_call
        set_limits(Limits(end_seconds=1.0))
        server = sampling_server.SamplingServer(pipelines.shuffled(), token="t")
        unclosed = sampling_server.SamplingServer(pipelines.shuffled(), token="t")
        calls = open_call(server.port), open_call(unclosed.port)
        time.sleep(0.5)
        begin = time.monotonic()
        server.close()
        server.close()
        print("closed", time.monotonic() - begin < 5)
        """
    )
    assert ended == (0, "closed True\n", "")


def test_others_are_let_in_where_that_was_asked_for() -> None:
    with SamplingServer(pipelines.shuffled(), "0.0.0.0", token=TOKEN, allow_plaintext=True) as server:
        assert server.port > 0


def test_tls_checks_the_certificate(tmp_path: Path) -> None:
    pipe, tls = pipelines.shuffled(), make_certificate(tmp_path)
    with SamplingServer(pipe, "0.0.0.0", token=TOKEN, tls=tls) as server:
        address = f"localhost:{server.port}"
        with gf.DataLoader(
            pipe, executor=gf.SamplingServers([address], token=TOKEN, tls_root_certs=tls[0]), seed=3
        ) as loader:
            assert len(list(loader)) == 9
        plain = gf.DataLoader(pipe, executor=gf.SamplingServers([address], token=TOKEN), timeout=5, seed=3)
        with plain, pytest.raises(ConnectionError, match=r"no sampling server is left.*\(connecting without TLS\)"):
            list(plain)


def test_wrong_arguments_are_refused() -> None:
    items = gf.ItemSampler(gf.ItemSet(4, names="seeds"), 2)

    def serve(pipe: Any = None, **options: Any) -> SamplingServer:
        return SamplingServer(pipelines.shuffled() if pipe is None else pipe, token=TOKEN, **options)

    check_refused(
        [
            (lambda: serve([]), TypeError, "pipe must be a pipeline of stages, but is a list"),
            (lambda: serve(items), ValueError, "by their index"),
            (
                lambda: gf.DataLoader(items, executor=gf.SamplingServers(["127.0.0.1:1"], token=TOKEN)),
                ValueError,
                "by index",
            ),
            (lambda: serve(port=70000), ValueError, "an address must be like"),
            (lambda: serve(host="0.0.0.0"), ValueError, r"others can reach host '0\.0\.0\.0', and without TLS"),
            (lambda: serve(host="192.0.2.1", allow_plaintext=True), OSError, r"can't listen on 192\.0\.2\.1:0: "),
        ]
    )


def test_a_server_of_its_own_may_listen_on_ipv6(no_leaks: None) -> None:
    try:
        listen("::1", 0).close()
    except OSError:
        pytest.skip("no IPv6")
    with SamplingServer(pipelines.shuffled(), "::1", token=TOKEN) as server:
        assert server.address == f"[::1]:{server.port}"
        with pytest.raises(OSError, match=rf"can't listen on \[::1\]:{server.port}: .*in use"):
            SamplingServer(pipelines.shuffled(), "::1", server.port, token=TOKEN)
        assert len(read(pipelines.shuffled(), server)) == 9
