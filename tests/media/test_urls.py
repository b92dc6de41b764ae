"""The shape of URLs that are fetched."""

import pytest

from mlxcel.media.rules import MediaRefused
from mlxcel.media.urls import read_url, redirected


@pytest.mark.parametrize(
    ("text", "host", "port", "target", "authority"),
    [
        ("http://a.example", "a.example", 80, "/", "a.example"),
        ("HTTPS://A.example/x?y=1#z", "a.example", 443, "/x?y=1", "a.example"),
        ("https://a.example:8443/", "a.example", 8443, "/", "a.example:8443"),
        ("http://[2606:4700::1]:81/x", "2606:4700::1", 81, "/x", "[2606:4700::1]:81"),
        ("http://bücher.example/ü", "xn--bcher-kva.example", 80, "/%C3%BC", None),
        ("http://a.example/a%20b", "a.example", 80, "/a%20b", "a.example"),
        ("http://a.example?q", "a.example", 80, "/?q", "a.example"),
    ],
)
def test_parts(text: str, host: str, port: int, target: str, authority: str | None) -> None:
    url = read_url(text)
    assert (url.host, url.port, url.target) == (host, port, target)
    assert url.authority == (host if authority is None else authority)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("ftp://a.example/x", "neither http:// nor https://", id="scheme"),
        pytest.param("gopher://a", "neither http", id="gopher"),
        pytest.param("//a.example/x", "neither http", id="no-scheme"),
        pytest.param("cat.png", "neither http", id="relative"),
        pytest.param("http:///x", "names no host", id="no-host"),
        pytest.param("http:x", "names no host", id="not-absolute"),
        pytest.param("http://:80/", "names no host", id="port-alone"),
        pytest.param("http://u@a.example/", "holds a user", id="user"),
        pytest.param("http://u:secret@a.example/", "holds a user", id="password"),
        pytest.param("http://@a.example/", "holds a user", id="empty-user"),
        pytest.param("http://:@a.example/", "holds a user", id="empty-both"),
        pytest.param("http://a.example:port/", "malformed", id="port"),
        pytest.param("http://a.example:99999/", "malformed", id="high-port"),
        pytest.param("http://[::1/", "malformed", id="bracket"),
        pytest.param("http://a.example\\@b.example/", "a backslash", id="backslash"),
        pytest.param("http://a.example/\r\nX: y", "a control character", id="line-end"),
        pytest.param("ht\ttp://a.example/", "a control character", id="tab-in-scheme"),
        pytest.param(" http://a.example/", "a space", id="space"),
        pytest.param("http://a.example/\0", "a control character", id="nul"),
        pytest.param("http://a.example/" + "x" * 9000, "longer than", id="long"),
        pytest.param("http://" + "a." * 200 + "example/", "no domain name", id="long-host"),
        pytest.param("http://ü" + "u" * 80 + ".example/", "no domain name", id="long-label"),
    ],
)
def test_shape_that_is_refused(text: str, says: str) -> None:
    with pytest.raises(MediaRefused, match=says) as caught:
        read_url(text)
    assert caught.value.status == 400
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("/y", "http://a.example/y"),
        ("y", "http://a.example/d/y"),
        ("//b.example/y", "http://b.example/y"),
        ("https://b.example/", "https://b.example/"),
    ],
)
def test_redirect_may_be_relative(location: str, text: str) -> None:
    assert redirected(read_url("http://a.example/d/x"), location).text == text


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://u:p@b.example/", "data:x", "http://["]
)
def test_redirect_is_judged_like_the_first(location: str) -> None:
    with pytest.raises(MediaRefused):
        redirected(read_url("http://a.example/"), location)
