"""Fixtures that tests of channels share."""

import pytest

from tests.distributed.served import make_certificate


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[bytes, bytes]]:
    """Return two certificates for this machine, each with its key."""
    return [make_certificate(tmp_path_factory.mktemp("certificates")) for _ in range(2)]


@pytest.fixture(scope="session")
def certificate(pairs: list[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """Return a certificate for this machine, and its key."""
    return pairs[0]
