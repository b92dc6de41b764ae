"""HTTPS: certificates and keys in the forms there are, and what is said of those that fail."""

import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlxcel.core.errors import StartupError
from mlxcel.http.server import HttpServer
from mlxcel.http.tls import load_tls
from tests.http.site import BODY, Start, server_options


def openssl(command: str) -> None:
    subprocess.run(["openssl", *command.split()], check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost, its key in every form, and the key of another."""
    at = tmp_path_factory.mktemp("tls")
    openssl(f"ecparam -genkey -noout -name prime256v1 -out {at}/sec1.pem")
    openssl(f"ecparam -genkey -noout -name prime256v1 -out {at}/other.pem")
    openssl(
        f"req -x509 -key {at}/sec1.pem -days 2 -subj /CN=localhost -out {at}/cert.pem"
        " -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    )
    openssl(f"pkcs8 -topk8 -nocrypt -in {at}/sec1.pem -out {at}/pkcs8.pem")
    openssl(f"pkcs8 -topk8 -in {at}/sec1.pem -out {at}/locked.pem -passout pass:x")
    openssl(f"ec -in {at}/sec1.pem -out {at}/locked-sec1.pem -aes128 -passout pass:x")
    openssl(f"genrsa -traditional -out {at}/pkcs1.pem 2048")
    openssl(f"req -x509 -key {at}/pkcs1.pem -days 2 -subj /CN=localhost -out {at}/rsa.pem")
    (at / "empty.pem").write_text("")
    (at / "broken.pem").write_text(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    )
    return at


@pytest.mark.parametrize(
    ("cert", "key"),
    [
        pytest.param("cert.pem", "sec1.pem", id="sec1"),
        pytest.param("cert.pem", "pkcs8.pem", id="pkcs8"),
        pytest.param("rsa.pem", "pkcs1.pem", id="pkcs1"),
    ],
)
def test_forms_of_a_key(folder: Path, cert: str, key: str) -> None:
    assert load_tls(str(folder / cert), str(folder / key)) is not None


def test_without_files_there_is_no_tls() -> None:
    assert load_tls(None, None) is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("cert", "key", "says"),
    [
        pytest.param("cert.pem", None, "without --ssl-key-file", id="cert-alone"),
        pytest.param(None, "sec1.pem", "without --ssl-cert-file", id="key-alone"),
        pytest.param("gone.pem", "sec1.pem", "--ssl-cert-file .*gone.pem cannot be", id="no-cert"),
        pytest.param("cert.pem", "gone.pem", "--ssl-key-file .*gone.pem cannot be", id="no-key"),
        pytest.param("", "sec1.pem", "--ssl-cert-file .* cannot be read: Is a dir", id="folder"),
        pytest.param("empty.pem", "sec1.pem", "empty.pem holds no certificate", id="empty-cert"),
        pytest.param("sec1.pem", "sec1.pem", "sec1.pem holds no certificate", id="key-as-cert"),
        pytest.param("cert.pem", "empty.pem", "empty.pem holds no private key", id="empty-key"),
        pytest.param("cert.pem", "cert.pem", "cert.pem holds no private key", id="cert-as-key"),
        pytest.param("cert.pem", "locked.pem", "locked.pem is encrypted", id="locked"),
        pytest.param("cert.pem", "locked-sec1.pem", "is encrypted", id="locked-sec1"),
        pytest.param("cert.pem", "other.pem", "other.pem is not the key of", id="mismatch"),
        pytest.param("cert.pem", "pkcs1.pem", "pkcs1.pem", id="another-kind"),
        pytest.param("broken.pem", "sec1.pem", "broken.pem .* cannot be used", id="broken-cert"),
        pytest.param("cert.pem", "broken.pem", "broken.pem cannot be used", id="broken-key"),
    ],
)
def test_files_that_cannot_be_used_stop_the_start(
    folder: Path, cert: str | None, key: str | None, says: str
) -> None:
    paths = {n: None if f is None else str(folder / f) for n, f in (("cert", cert), ("key", key))}
    with pytest.raises(StartupError, match=says):
        HttpServer.preflight(server_options(tls=paths))


@pytest.fixture
def tls(folder: Path) -> dict[str, Any]:
    return {"cert": str(folder / "cert.pem"), "key": str(folder / "sec1.pem")}


@pytest.mark.asyncio
async def test_https(start: Start, tls: dict[str, str]) -> None:
    site = await start(tls=tls, api_keys=["k"])
    assert site.address.startswith("https://127.0.0.1:")
    trusting = ssl.create_default_context(cafile=tls["cert"])
    right = {"X-Api-Key": "k"}
    async with httpx.AsyncClient(verify=trusting, base_url=site.address) as client:
        assert (await client.get("/v1/models")).status_code == 401
        response = await client.post("/v1/chat/completions", json=BODY, headers=right)
        assert response.json()["choices"][0]["message"]["content"] == "Hello"
        streamed = BODY | {"stream": True}
        async with client.stream(
            "POST", "/v1/chat/completions", json=streamed, headers=right
        ) as stream:
            assert (await stream.aread()).endswith(b"data: [DONE]\n\n")


@pytest.mark.asyncio
async def test_a_client_that_trusts_others_or_speaks_plainly_disturbs_nobody(
    start: Start, tls: dict[str, str]
) -> None:
    site = await start(tls=tls)
    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(f"{site.address}/health")
        with pytest.raises(httpx.HTTPError):
            await client.get(f"{site.address.replace('https', 'http')}/health")
    trusting = ssl.create_default_context(cafile=tls["cert"])
    async with httpx.AsyncClient(verify=trusting) as client:
        assert (await client.get(f"{site.address}/health")).status_code == 200


@pytest.mark.asyncio
@pytest.mark.timeout(20)
async def test_a_server_with_an_open_connection_stops_soon(
    start: Start, tls: dict[str, str]
) -> None:
    site = await start(tls=tls)
    trusting = ssl.create_default_context(cafile=tls["cert"])
    async with httpx.AsyncClient(verify=trusting) as client:
        await client.get(f"{site.address}/health")
        await site.server.stop()
        with pytest.raises(httpx.HTTPError):
            await client.get(f"{site.address}/health")
