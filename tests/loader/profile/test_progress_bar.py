import re
import sys
from itertools import islice

import pytest

import graphfeed as gf


def items(count: int) -> gf.Datapipe:
    return gf.ItemSampler(gf.ItemSet(count, names="seeds"), batch_size=1)


def test_the_bar_has_the_epoch_the_count_and_how_much_the_loop_waits(capsys: pytest.CaptureFixture[str]) -> None:
    loader = gf.DataLoader(items(12), num_workers=0, progress=True)
    assert len(list(loader)) == len(list(loader)) == 12
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"epoch 1: 100%.* 12/12 .*batch/s, waits \d+ %", err)


def test_a_resumed_epoch_goes_on_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    loader = gf.DataLoader(items(12), num_workers=0, seed=0)
    list(islice(loader, 5))
    with gf.DataLoader(items(12), num_workers=2, progress=True) as other:
        other.load_state_dict(loader.state_dict())
        assert len(list(other)) == 7
    err = capsys.readouterr().err
    assert "5/12" in err
    assert "12/12" in err


def test_a_pipeline_without_a_length_has_a_bar_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    pipe = gf.MiniBatchTransformer(iter([gf.MiniBatch()] * 3))  # type: ignore[arg-type]
    assert len(list(gf.DataLoader(pipe, num_workers=0, progress=True))) == 3
    assert "3batch" in capsys.readouterr().err


def test_other_ranks_than_the_first_show_none(capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        source = gf.DistributedItemSampler(gf.ItemSet(4, names="seeds"), 1, rank=rank, world_size=2, seed=0)
        list(gf.DataLoader(source, num_workers=0, progress=True))
        assert ("2/2" in capsys.readouterr().err) == (rank == 0)


def test_without_tqdm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r"progress=True needs tqdm"):
        next(iter(gf.DataLoader(items(2), num_workers=0, progress=True)))
