"""Servers and senders on machines whose links are cut, so that they are silent but not closed."""

import subprocess
import textwrap
from pathlib import Path

import pytest

import graphfeed as gf
from tests.kinds import pipelines
from tests.kinds.digests import digests
from tests.stand_ins.machines import Machines, machines
from tests.stand_ins.scripts import IMPORTS
from tests.stand_ins.served import PIPELINE, TOKEN, make_certificate

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(200)]
TIMEOUT = 3.0
READER = f"""
    from tests.kinds.digests import digest
    addresses = ["grpc://10.77.1.2:5000", "grpc://10.77.2.2:5000"]
    pipe, gaps = pipelines.homogeneous(), []
    options = dict(executor=gf.SamplingServers(addresses, {TOKEN!r}), timeout={TIMEOUT}, seed=3, prefetch_factor=1)
    with gf.DataLoader(pipe, 2, **options) as own:
        before = time.monotonic()
        for index, minibatch in enumerate(own):
            gaps.append(time.monotonic() - before)
            print(digest(minibatch), flush=True)
            if index == 3:
                input()
            before = time.monotonic()
    print(max(gaps[4:]), flush=True)
"""
SENDER = f"""
    import torch
    from graphfeed.distributed import SamplerSender
    number = int(sys.argv[1])
    print("ready", flush=True)
    known = open(sys.argv[2], "rb").read()
    address = f"10.77.{{number}}.1:7000"
    sender = SamplerSender({{0: address}}, token={TOKEN!r}, tls_root_certs=known, timeout=30)
    for step in range(20):
        sender.send({{"of": torch.tensor([number, step])}}, 0)
    if number == 1:
        sender.signal(0)
    print("sent", flush=True)
    time.sleep(100)
"""
RECEIVER = f"""
    from graphfeed.distributed import SamplerReceiver
    tls = tuple(open(name, "rb").read() for name in sys.argv[1:])
    receiver = SamplerReceiver(None, "0.0.0.0:7000", num_sender=2, token={TOKEN!r}, tls=tls, timeout={TIMEOUT})
    input()
    try:
        for sample in receiver:
            print(*sample["of"].tolist(), flush=True)
    except TimeoutError as error:
        print(error, flush=True)
"""


def program(body: str) -> tuple[str, str]:
    return "-c", IMPORTS + textwrap.dedent(body)


def start_server(on: Machines, machine: str, folder: Path) -> None:
    script, token = folder / "homogeneous.py", folder / "token"
    script.write_text(PIPELINE.format(name="homogeneous"))
    token.write_text(TOKEN)
    token.chmod(0o600)
    arguments = ["--bind", "0.0.0.0:5000", "--token-file", str(token), "--allow-plaintext"]
    server = on.start(machine, "-m", "graphfeed", "serve", str(script), *arguments)
    assert server.stdout is not None
    assert server.stdout.readline().startswith("serving ")


def test_a_server_whose_link_is_cut_costs_no_mini_batch(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    expected = digests(gf.DataLoader(pipelines.homogeneous(), num_workers=0, seed=3))
    with machines(2) as on:
        for machine in on.others:
            start_server(on, machine, tmp_path)
        reader = on.start(on.home, *program(READER))
        assert reader.stdout is not None
        first = [reader.stdout.readline().strip() for _ in range(4)]
        assert first == expected[:4]
        on.cut(on.others[0])
        rest, _ = reader.communicate("\n", timeout=100)
    *found, gap = rest.split()
    assert first + found == expected
    assert float(gap) < 2 * TIMEOUT


def let_senders_send(on: Machines, folder: Path) -> "subprocess.Popen[str]":
    """Return the receiver as soon as all senders have sent."""
    make_certificate(folder, "IP:10.77.1.1,IP:10.77.2.1")
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    receiver = on.start(on.home, *program(RECEIVER), certificate, key)
    senders = [
        on.start(machine, *program(SENDER), str(number), certificate) for number, machine in enumerate(on.others, 1)
    ]
    expect(senders, "ready\n")
    assert receiver.stdin is not None
    receiver.stdin.write("\n")
    receiver.stdin.flush()
    expect(senders, "sent\n")
    return receiver


def expect(processes: list["subprocess.Popen[str]"], line: str) -> None:
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == line


def test_samples_come_from_other_machines_and_a_sender_whose_link_is_cut_is_named_in_time(tmp_path: Path) -> None:
    with machines(2) as on:
        receiver = let_senders_send(on, tmp_path)
        on.cut(on.others[1])
        found, _ = receiver.communicate(timeout=60)
    *samples, error = found.splitlines()
    for number in (1, 2):
        assert [line for line in samples if line[0] == str(number)] == [f"{number} {step}" for step in range(20)]
    assert "1 of 2 senders have signalled, and sender 10.77.2.2:" in error
