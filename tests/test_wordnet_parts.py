import re

import pytest

from tests import scripts

LINE = re.compile(
    r"epoch \d: .* s; test accuracy \d\.\d\d; in 2 parts (3 mini-batches with digest \w{16}), in one process \1"
)


@pytest.mark.thorough
def test_two_processes_with_a_part_each_train_on_the_mini_batches_of_one() -> None:
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = scripts.run("-m", *torchrun, "-m", "tests.distributed.tiny_demo")
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 2
    assert all(LINE.fullmatch(line) for line in lines), run.stdout
    assert lines[0].partition("digest")[2] != lines[1].partition("digest")[2]
