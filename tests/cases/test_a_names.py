"""Public faults, A13: names of the loaded model, with the network cut."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cases.asking import CHAT, assert_error_object, post_raw, processes
from tests.cases.routes import MESSAGES, RESPONSES, TEXTS, Route, name_of
from tests.whole.program import Program, chat_body, serve_checkpoint

pytestmark = pytest.mark.slow  # nothing in it is disturbed by neighbours

ALIASES = ("main-model", "org/other-name")


class Recorder:
    """A port of loopback that stands for the internet: it counts who calls, and hangs up."""

    def __enter__(self) -> "Recorder":
        self.calls = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                return
            self.calls += 1
            caller.close()

    @property
    def env(self) -> dict[str, str]:
        """Whoever wants to reach a hub, by any client, comes here."""
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), self.url)
        lower = {name.lower(): url for name, url in proxies.items()}
        return {"HF_ENDPOINT": self.url, "HF_HUB_OFFLINE": "0", "NO_PROXY": "", **proxies, **lower}


@pytest.fixture(scope="module")
def internet() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder


@pytest.fixture(scope="module")
def named(tiny: Path, internet: Recorder) -> Iterator[Program]:
    """Refuses what it does not serve."""
    words = serve_checkpoint(tiny, "--alias", ",".join(ALIASES), "routes.unknown_model=refuse")
    with Program(*words, env=internet.env) as program:
        yield program


@pytest.fixture(scope="module")
def accepting(tiny: Path, internet: Recorder) -> Iterator[Program]:
    """The default: any name means the one model there is."""
    with Program(*serve_checkpoint(tiny), env=internet.env) as program:
        yield program


def _ask(program: Program, name: str) -> tuple[int, Any]:
    return program.post(CHAT, chat_body("hi", model=name, max_tokens=2))


def _promised(program: Program, tiny: Path) -> list[str]:
    entry = program.get("/v1/models")[1]["data"][0]
    return [entry["id"], *entry["aliases"], tiny.name, str(tiny)]


def _foreign_connections(program: Program) -> list[Any]:
    """Connections of the front and the worker to anywhere but loopback."""
    found = [c for p in processes(program).values() for c in p.net_connections("inet") if c.raddr]
    return [c for c in found if not c.raddr.ip.startswith("127.")]


def test_a13_every_promised_name_is_answered(
    named: Program, internet: Recorder, tiny: Path
) -> None:
    """A13: the folder's last name was looked up on the internet, though loaded.

    https://github.com/ml-explore/mlx-lm/issues/1133
    """
    names = _promised(named, tiny)
    assert set(ALIASES) < set(names)
    answers = {name: _ask(named, name) for name in names}
    assert {name: status for name, (status, _) in answers.items()} == dict.fromkeys(names, 200)
    assert {answer["model"] for _, answer in answers.values()} == {names[0]}
    assert internet.calls == 0
    assert _foreign_connections(named) == []


@pytest.mark.parametrize("asked_stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("tiny", id="beginning-of-a-name"),
        pytest.param("mlx-community/tiny-2l", id="hub-name-of-the-folder"),
        pytest.param("gpt-4o", id="stranger"),
        pytest.param("../tiny-2l", id="path-upwards"),
        pytest.param("/etc", id="another-folder"),
        pytest.param("", id="empty"),
        pytest.param("é🎭", id="not-ascii"),
        pytest.param("x" * 5000, id="very-long"),
    ],
)
def test_a13_any_other_name_is_not_found_at_once(
    named: Program, internet: Recorder, name: str, asked_stream: bool
) -> None:
    """A13: 404 `model_not_found`, and nobody is asked for it."""
    body = chat_body("hi", model=name, max_tokens=2, stream=asked_stream)
    status, kind, answer = post_raw(named, body)
    assert (status, kind) == (404, "application/json")
    assert_error_object(answer, code="model_not_found", param="model")
    assert internet.calls == 0


@pytest.mark.parametrize("route", [TEXTS, RESPONSES, MESSAGES], ids=name_of)
def test_a13_names_mean_the_same_on_every_route(named: Program, tiny: Path, route: Route) -> None:
    """A13: with the error of the dialect, before the stream."""
    for name in _promised(named, tiny):
        assert named.post(route.path, route.body("hi", model=name, max_tokens=1))[0] == 200
    for asked_stream in (True, False):
        body = route.body("hi", model="gpt-4o", stream=asked_stream)
        status, kind, answer = post_raw(named, body, path=route.path)
        assert (status, kind) == (404, "application/json")
        route.assert_refused(answer, code="model_not_found")


@pytest.mark.parametrize("name", ["gpt-4o", "mlx-community/tiny-2l", "tiny"])
def test_a13_by_default_any_name_means_the_one_model(
    accepting: Program, internet: Recorder, tiny: Path, name: str
) -> None:
    """A13: 200 and the served id, without a look at the network."""
    for asked in (name, *_promised(accepting, tiny)):
        status, answer = _ask(accepting, asked)
        assert (status, answer["model"]) == (200, tiny.name)
    assert internet.calls == 0


def test_a13_the_recorder_would_notice(accepting: Program) -> None:
    """The proof that the cases above can fail: a name to load at start does go out."""
    with (
        Recorder() as internet,
        Program("serve", "--model", "nobody/nothing", env=internet.env, wait="exit") as program,
    ):
        assert program.wait() != 0
        assert internet.calls > 0


def test_a13_connections_are_seen(named: Program) -> None:
    """The proof for the second witness: psutil sees this test's own connection."""
    with socket.create_connection(("127.0.0.1", int(named.url.rsplit(":", 1)[1]))):
        deadline = time.monotonic() + 5
        while not any(c.raddr for c in psutil.Process(named.pid).net_connections("inet")):
            assert time.monotonic() < deadline, "our own connection was never seen"
            time.sleep(0.02)
