"""What the tests of ranks that share memory have in common."""

from typing import Any

import pytest

from tests.distributed.rank_processes import run_ranks


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return what each of three ranks found in all cases of `sharing`, which need but one start of them."""
    return run_ranks("tests.distributed.sharing:share_all", 3, tmp_path_factory.mktemp("ranks"))
