from pathlib import Path
from typing import Any

import pytest

from graphfeed.distributed import SamplingServer
from graphfeed.distributed.certificates import check_root_certificates, make_context
from graphfeed.distributed.remote_executor import RemoteExecutor
from tests import pipelines
from tests.distributed.served import TOKEN, make_certificate


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[bytes, bytes]]:
    """Two certificates, each with its key."""
    return [make_certificate(tmp_path_factory.mktemp("certificates")) for _ in range(2)]


def test_a_certificate_needs_its_own_key(pairs: list[tuple[bytes, bytes]]) -> None:
    (certificate, key), (_, other_key) = pairs
    make_context(certificate, key)
    check_root_certificates(certificate)
    for given in ((certificate, other_key), (key, certificate), (b"nothing", key), (b"", b"")):
        with pytest.raises(ValueError, match="tls must be a certificate chain and the private key"):
            make_context(*given)


@pytest.mark.parametrize("content", [b"nothing", b"", b"\xff\x00", "chain.pem", Path("chain.pem")])
def test_what_holds_no_certificate_is_refused_before_anything_is_sent(content: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="tls_root_certs must be certificates as"):
        RemoteExecutor(["10.0.0.2:5"], TOKEN, content, 1, 1.0)


def test_a_server_does_not_start_with_the_key_of_another_certificate(pairs: list[tuple[bytes, bytes]]) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="tls must be a certificate chain"):
        SamplingServer(pipelines.shuffled(), token=TOKEN, tls=(pairs[0][0], pairs[1][1]))
