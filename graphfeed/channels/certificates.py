"""Certificates and keys as PEM, checked before they go to a library that says less of what is wrong."""

import ssl
import tempfile
from pathlib import Path


def make_server_context(certificate: bytes, key: bytes) -> ssl.SSLContext:
    """Return what a server's TLS needs; the module `ssl` reads certificates from files alone.

    Raises:
        TypeError: They are no bytes.
        ValueError: They are no certificate and key, or do not belong together; or the key is encrypted.
    """
    for name, content in (("certificate", certificate), ("key", key)):
        if not isinstance(content, bytes):
            raise TypeError(
                f"tls must be a certificate chain and its key as bytes, but the {name} is a {type(content).__name__}"
            )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("certificate", certificate), ("key", key)):
            (Path(folder) / name).write_bytes(content)
        try:
            context.load_cert_chain(f"{folder}/certificate", f"{folder}/key", refuse_password)
        except ssl.SSLError as error:
            raise ValueError(
                f"tls must be a certificate chain and the private key of its first certificate, both as PEM: {error}"
            ) from error
    return context


def refuse_password() -> str:
    """Refuse to decrypt a key; without this, the password would be asked for on the terminal."""
    raise ValueError("the private key of tls is encrypted; give it decrypted, as openssl pkey writes it")


def make_client_context(content: bytes) -> ssl.SSLContext:
    """Return what a client's TLS needs to check servers' certificates, and their names, against some others.

    Raises:
        TypeError: It is not bytes.
        ValueError: It holds no certificate.
    """
    if not isinstance(content, bytes):
        raise TypeError(
            f"tls_root_certs must be certificates as bytes, such as Path('chain.pem').read_bytes(), but is {content!r}"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Bundles have the names of authorities as comments, in any encoding.
        context.load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"tls_root_certs must be certificates as PEM: {error}") from error
    return context
