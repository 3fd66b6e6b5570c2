"""What the tests of ranks that share memory, and those of certificates, have in common."""

from typing import Any

import pytest

from tests.distributed.rank_processes import run_ranks
from tests.distributed.served import make_certificate


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return what each of three ranks found in all cases of `sharing`, which need but one start of them."""
    return run_ranks("tests.distributed.sharing:share_all", 3, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[bytes, bytes]]:
    """Return two certificates for this machine, each with its key."""
    return [make_certificate(tmp_path_factory.mktemp("certificates")) for _ in range(2)]
