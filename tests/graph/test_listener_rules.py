"""What the listener, CORS and the size of a body mean as a whole."""

from typing import Any

import pytest

from mlxcel.core.problem import Problem
from mlxcel.graph import rules
from mlxcel.graph.rules import Rule, Settled
from tests.graph.sound_tree import tree

SOCKET = {"server__host": "/run/mlxcel.sock"}
OLD = {"server__host": "/run/mlxcel", "server__port": 0}
ALLOWED = "server__cors__allowed_origins"


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        pytest.param(rules.listener_kind, {"server__host": "::1"}, id="address"),
        pytest.param(rules.listener_kind, {"server__host": "box.lan"}, id="host-name"),
        pytest.param(rules.listener_kind, SOCKET, id="socket"),
        pytest.param(rules.listener_kind, {"server__host": "a.sock"}, id="relative-socket"),
        pytest.param(rules.open_listener, SOCKET, id="socket-is-not-open"),
        pytest.param(rules.open_listener, OLD, id="nor-is-one-of-the-old-spelling"),
        pytest.param(
            rules.listener_kind,
            {"server__tls__cert": "c", "server__reuse_port": True},
            id="tls-and-reuse-on-tcp",
        ),
        pytest.param(
            rules.whole_tls, {"server__tls__cert": "c", "server__tls__key": "k"}, id="both-files"
        ),
        pytest.param(rules.whole_tls, {}, id="no-tls"),
        pytest.param(rules.page_origins, {"server__cors__origins": ["localhost"]}, id="origins"),
        pytest.param(rules.body_limit, {"limits__body_bytes": 16384}, id="limit-that-was-given"),
        pytest.param(rules.media_unread, {}, id="no-media"),
    ],
)
def test_sound_values_pass(rule: Rule, values: dict[str, Any]) -> None:
    assert list(rule(tree(**values), None)) == []


@pytest.mark.parametrize(
    ("rule", "values", "key", "words"),
    [
        pytest.param(
            rules.listener_kind,
            {"server__host": "./socket"},
            "server.host",
            "no address",
            id="path-with-a-port",
        ),
        pytest.param(
            rules.listener_kind,
            SOCKET | {"server__tls__cert": "c", "server__tls__key": "k"},
            "server.tls.cert",
            "Unix socket /run/mlxcel.sock",
            id="tls-on-a-socket",
        ),
        pytest.param(
            rules.listener_kind,
            SOCKET | {"server__reuse_port": True},
            "server.reuse_port",
            "Unix socket /run/mlxcel.sock",
            id="shared-socket",
        ),
        pytest.param(
            rules.whole_tls,
            {"server__tls__cert": "c"},
            "server.tls.key",
            "--ssl-cert-file",
            id="cert-alone",
        ),
        pytest.param(
            rules.whole_tls,
            {"server__tls__key": "k"},
            "server.tls.cert",
            "--ssl-key-file",
            id="key-alone",
        ),
        pytest.param(
            rules.page_origins,
            {ALLOWED: ["http://a"], "server__cors__origins": ["*"]},
            "server.cors.allowed_origins",
            "--cors-origins",
            id="both-lists-of-origins",
        ),
    ],
)
def test_conflict_is_a_problem(rule: Rule, values: dict[str, Any], key: str, words: str) -> None:
    (problem,) = rule(tree(**values), None)
    assert isinstance(problem, Problem)
    assert problem.key == key
    assert words in problem.rule
    assert problem.hint


@pytest.mark.parametrize(
    ("rule", "values", "words"),
    [
        pytest.param(rules.listener_kind, OLD, "let its path end in .sock", id="old-spelling"),
        pytest.param(
            rules.media_unread, {"limits__media_path": "/m"}, "media_path has no", id="media-path"
        ),
        pytest.param(
            rules.media_unread,
            {"limits__allow_private_media_urls": True},
            "allow_private_media_urls has no effect",
            id="private-urls",
        ),
        pytest.param(
            rules.media_unread,
            {"limits__video__dir_allowlist": ["/v"]},
            "dir_allowlist has no effect",
            id="video-folders",
        ),
    ],
)
def test_warning(rule: Rule, values: dict[str, Any], words: str) -> None:
    (warning,) = rule(tree(**values), None)
    assert isinstance(warning, str)
    assert words in warning


@pytest.mark.parametrize(
    ("payload", "images", "limit"),
    [
        pytest.param(67108864, 16, 1432712576, id="defaults"),
        pytest.param(67108864, 0, 2097152, id="no-images"),
        pytest.param(0, 16, 2097152, id="empty-images"),
        pytest.param(3, 1, 2097152, id="at-least-two-MiB"),
        pytest.param(67108864, 100, 2147483648, id="at-most-two-GiB"),
        pytest.param(3_000_001, 1, 4 * 1_000_001 + 1048576 + 512, id="rounded-up"),
    ],
)
def test_body_limit_has_room_for_the_images(payload: int, images: int, limit: int) -> None:
    image = {"payload_bytes": payload, "max_images": images}
    found = list(rules.body_limit(tree(limits__image=image), None))
    assert found == [Settled(key="limits.body_bytes", used=limit)]


def test_any_page_may_call_where_nothing_is_said() -> None:
    found = list(rules.page_origins(tree(), None))
    assert found == [Settled(key="server.cors.origins", used=["*"])]


def test_listed_origins_are_trimmed() -> None:
    found = list(rules.page_origins(tree(**{ALLOWED: [" http://a ", "", "https://b:8443"]}), None))
    assert found == [
        Settled(key="server.cors.allowed_origins", used=["http://a", "https://b:8443"])
    ]


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:3000", "https://page.example", "http://[::1]:5", "http://10.0.0.1"],
)
def test_origin_is_taken(origin: str) -> None:
    (found,) = rules.page_origins(tree(**{ALLOWED: [origin]}), None)
    assert isinstance(found, Settled)


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ("localhost", "does not begin with"),
        ("localhost:3000", "does not begin with"),
        ("*", "does not begin with"),
        ("null", "does not begin with"),
        ("ftp://a", "does not begin with"),
        ("http:a", "does not begin with"),
        ("https://", "names no host"),
        ("https://:80", "names no host"),
        ("https://a b", "names no host"),
        ("https://a/", "not even /"),
        ("https://a/b", "not even /"),
        ("https://a?", "not even /"),
        ("https://a?b", "not even /"),
        ("https://a#b", "not even /"),
        ("https://u@a", "holds a user"),
        ("https://u:p@a", "holds a user"),
        ("https://a:", "no port"),
        ("https://a:port", "is no origin"),
        ("https://a:99999", "is no origin"),
        ("http://[", "is no origin"),
    ],
)
def test_what_is_no_origin_is_named(origin: str, words: str) -> None:
    problem, _ = rules.page_origins(tree(**{ALLOWED: [origin]}), None)
    assert isinstance(problem, Problem)
    assert problem.value == origin
    assert words in problem.rule


def test_list_of_blanks_is_a_problem() -> None:
    problem, _ = rules.page_origins(tree(**{ALLOWED: ["", " "]}), None)
    assert isinstance(problem, Problem)
    assert problem.rule == "names no origin"
