"""Certificates for the tests of servers."""

import pytest

from tests.stand_ins.served import make_certificate


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[bytes, bytes]]:
    """Return two certificates for this machine, each with its key."""
    return [make_certificate(tmp_path_factory.mktemp("certificates")) for _ in range(2)]
