"""The programs that docs/many-machines.md has for a pool of samplers."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.rank_processes import free_port
from tests.distributed.served import TOKEN, make_certificate
from tests.scripts import REPOSITORY, SECONDS

PAGE = REPOSITORY / "docs" / "many-machines.md"
FILES = dict(re.findall(r"^```py\n# (\S+)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))


@pytest.mark.slow
def test_they_send_all_samples_of_each_epoch_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = make_certificate(tmp_path)
    for name, content in (("chain.pem", certificate), ("key.pem", key), ("token", TOKEN.encode() + b"\n")):
        (tmp_path / name).write_bytes(content)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text.replace("...  # train", "print(len(sample['seeds']))  # train"))
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["trainer.py", address])
    sampler = subprocess.Popen(
        [sys.executable, "sampler.py", address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        runpy.run_path("trainer.py", run_name="__main__")
        printed, _ = sampler.communicate(timeout=SECONDS)
    finally:
        sampler.kill()
    assert (sampler.returncode, printed) == (0, "")
    assert capsys.readouterr().out == "".join("100\n" * 20 + f"epoch {epoch} is over\n" for epoch in range(3))
