import os
from pathlib import Path

import numpy as np
import pytest
import torch

from graphfeed.distributed.one_machine import memory_scope
from graphfeed.distributed.one_machine.memory_scope import open_handle, share, write_handle


def test_a_scope_is_that_of_the_machine_and_of_the_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = memory_scope.memory_scope()
    assert own == memory_scope.memory_scope() != ""
    (tmp_path / "boot_id").write_text("another")
    os.symlink("pid:[7]", tmp_path / "pid")
    for name, path in (("BOOT_ID", tmp_path / "boot_id"), ("PROCESSES", tmp_path / "pid")):
        with monkeypatch.context() as patch:
            patch.setattr(memory_scope, name, path)
            assert memory_scope.memory_scope() not in ("", own)
            patch.setattr(memory_scope, name, tmp_path / "absent")
            assert memory_scope.memory_scope() == ""


def test_a_tensor_in_memory_is_found_for_as_long_as_its_block_is_kept(no_leaks: None) -> None:
    values = torch.arange(6).view(3, 2)
    place, block = share(values)
    (found,), opened = open_handle(write_handle(place))
    assert torch.equal(found, values)
    assert block is not None
    block.tensors[0][0, 0] = 9
    assert found[0, 0] == 9
    del block, found, opened
    with pytest.raises(FileNotFoundError):
        open_handle(write_handle(place))


def test_a_mapped_tensor_stays_in_its_file(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(6.0).reshape(3, 2))
    mapped = torch.from_numpy(np.load(tmp_path / "rows.npy", mmap_mode="c"))
    place, block = share(mapped[1:])
    assert block is None
    (found,), opened = open_handle(write_handle(place))
    assert opened is None
    assert found.tolist() == [[2, 3], [4, 5]]
