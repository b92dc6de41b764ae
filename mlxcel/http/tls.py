"""The certificate and key of an HTTPS listener."""

import ssl
from pathlib import Path

from mlxcel.core.errors import StartupError

CERT = "--ssl-cert-file (server.tls.cert)"
KEY = "--ssl-key-file (server.tls.key)"
CERT_BLOCK = "-----BEGIN CERTIFICATE-----"
KEY_BLOCKS = (
    "-----BEGIN PRIVATE KEY-----",  # PKCS#8
    "-----BEGIN RSA PRIVATE KEY-----",  # PKCS#1
    "-----BEGIN EC PRIVATE KEY-----",  # SEC1
)
LOCKED = "ENCRYPTED"


def load_tls(cert: str | None, key: str | None) -> ssl.SSLContext | None:
    """None without files. Raises StartupError that names the flag and the path."""
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        given, other = (CERT, KEY) if key is None else (KEY, CERT)
        raise StartupError(f"{given} is given without {other}; TLS needs both")
    if CERT_BLOCK not in _read(CERT, cert):
        raise StartupError(f"{CERT} {cert} holds no certificate in PEM form")
    _check_key(key, _read(KEY, key))
    return _context(Path(cert).expanduser(), Path(key).expanduser())


def _context(cert: Path, key: Path) -> ssl.SSLContext:
    # From TLS 1.2 on, as Python has it by default.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ValueError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise StartupError(
                f"{KEY} {key} is not the key of the certificate {CERT} {cert}"
            ) from error
        raise StartupError(
            f"{CERT} {cert} and {KEY} {key} cannot be used: {_words(error)}"
        ) from error
    return context


def _words(error: Exception) -> str:
    """OpenSSL's reason without its file and line."""
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error)


def _check_key(path: str, text: str) -> None:
    if LOCKED in text:
        # OpenSSL would ask for the passphrase on the terminal, and wait.
        raise StartupError(f"{KEY} {path} is encrypted; write it without a passphrase")
    if not any(block in text for block in KEY_BLOCKS):
        raise StartupError(
            f"{KEY} {path} holds no private key in PEM form (PKCS#8, PKCS#1 or SEC1)"
        )


def _read(flag: str, path: str) -> str:
    try:
        return Path(path).expanduser().read_bytes().decode("ascii", "replace")
    except OSError as error:
        raise StartupError(f"{flag} {path} cannot be read: {error.strerror}") from error
