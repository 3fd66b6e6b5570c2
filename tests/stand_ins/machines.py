"""Several machines on one: network namespaces, whose links can be cut. Linux only, as root."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.stand_ins.scripts import REPOSITORY


def ip(*arguments: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass
class Machines:
    """A machine with a separate link to each of some others, which have the addresses 10.77.1.2, 10.77.2.2, ..."""

    home: str
    others: list[str]
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)

    def start(self, machine: str, *arguments: str) -> "subprocess.Popen[str]":
        """Start the interpreter on a machine."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", machine, sys.executable, *arguments],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def cut(self, machine: str) -> None:
        """Cut the link of one of the others: nothing arrives any more, without any notification."""
        ip("-n", machine, "link", "set", "eth0", "down")


@contextmanager
def machines(count: int) -> Iterator[Machines]:
    """Yield a machine and `count` others; skip the test if they can't be created."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and ip")
    names = [f"graphfeed-{os.getpid()}-{number}" for number in range(count + 1)]
    found = Machines(names[0], names[1:])
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            for number, name in enumerate(found.others, 1):
                ip("-n", found.home, "link", "add", f"eth{number}", "type", "veth", "peer", "eth0", "netns", name)
                for own, device, end in ((found.home, f"eth{number}", 1), (name, "eth0", 2)):
                    ip("-n", own, "address", "add", f"10.77.{number}.{end}/24", "dev", device)
                    ip("-n", own, "link", "set", device, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr!r}")
        yield found
    finally:
        for process in found.processes:
            process.kill()
            process.communicate()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
