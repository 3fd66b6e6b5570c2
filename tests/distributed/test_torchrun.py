from pathlib import Path
from typing import Any

import pytest

import graphfeed as gf
from tests import scripts
from tests.digests import digest
from tests.distributed.graphs import plain

NEW_STORE: dict[str, Any] = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it, torch's gloo connects to where the ranks before the restart listened."""


@pytest.mark.slow
def test_a_killed_rank_is_started_again_with_all_others_and_the_epoch_goes_on(tmp_path: Path) -> None:
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    run = scripts.run("-m", *torchrun, "-m", "tests.distributed.restarted", str(tmp_path), **NEW_STORE)
    assert run.returncode == 0, run.stderr
    assert "exitcode: -9" in run.stderr
    pipe = gf.ItemSampler(gf.ItemSet(96, names="seeds"), 6, shuffle=True).sample_neighbor(plain(), [3, 4])
    wanted = [digest(batch) for batch in gf.DataLoader(pipe, 0, seed=4)]
    for rank in range(2):
        assert (tmp_path / f"made {rank}.txt").read_text().split() == wanted[rank::2]
