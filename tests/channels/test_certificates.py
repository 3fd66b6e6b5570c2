import subprocess
from pathlib import Path
from typing import Any

import pytest

from graphfeed.channels.certificates import make_client_context, make_server_context
from graphfeed.distributed import SamplingServer
from graphfeed.distributed.servers.remote_executor import RemoteExecutor
from tests import pipelines
from tests.distributed.served import TOKEN


def test_a_certificate_needs_its_own_key(pairs: list[tuple[bytes, bytes]]) -> None:
    (certificate, key), (_, other_key) = pairs
    make_server_context(certificate, key)
    make_client_context(certificate)
    for given in ((certificate, other_key), (key, certificate), (b"nothing", key), (b"", b"")):
        with pytest.raises(ValueError, match="tls must be a certificate chain and the private key"):
            make_server_context(*given)


@pytest.mark.parametrize("content", [b"nothing", b"", b"\xff\x00", "chain.pem", Path("chain.pem")])
def test_what_holds_no_certificate_is_refused_before_anything_is_sent(content: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="tls_root_certs must be certificates as"):
        RemoteExecutor(["10.0.0.2:5"], TOKEN, content, 1, 1.0)


def test_a_server_does_not_start_with_the_key_of_another_certificate(pairs: list[tuple[bytes, bytes]]) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="tls must be a certificate chain"):
        SamplingServer(pipelines.shuffled(), token=TOKEN, tls=(pairs[0][0], pairs[1][1]))


def test_a_key_that_is_encrypted_is_refused_and_nobody_is_asked_for_its_password(
    pairs: list[tuple[bytes, bytes]], tmp_path: Path
) -> None:
    certificate, key = pairs[0]
    (tmp_path / "key.pem").write_bytes(key)
    command = ["openssl", "pkey", "-in", str(tmp_path / "key.pem"), "-aes256", "-passout", "pass:word"]
    encrypted = subprocess.run(command, capture_output=True, check=True).stdout
    assert b"ENCRYPTED" in encrypted
    with pytest.raises(ValueError, match="the private key of tls is encrypted"):
        make_server_context(certificate, encrypted)


def test_a_key_that_is_given_as_text_is_not_shown() -> None:
    with pytest.raises(TypeError, match=r"as bytes, but the key is a str$"):
        make_server_context(b"", "a secret")  # type: ignore[arg-type]


def test_certificates_may_have_comments_in_any_encoding(pairs: list[tuple[bytes, bytes]]) -> None:
    for comment in ("# Főtanúsítvány\n".encode(), b"# F\xf5tan\xfas\xedtv\xe1ny\n"):
        make_client_context(comment + pairs[0][0])
