"""Downloads from a local stand-in of the hub: the HTTP API that `huggingface_hub` speaks."""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from mlxcel.core.errors import StartupError
from mlxcel.graph.drafter import locate_drafter
from mlxcel.store import hub
from mlxcel.store.problems import ModelMissing, NoSpace, UnsupportedModel
from mlxcel.store.progress import silent
from mlxcel.store.resolve import Store, find, obtain

pytestmark = pytest.mark.slow

REPO = "owner/tiny"
COMMIT = "a" * 40
WEIGHTS = "model.safetensors"


@dataclass
class Hub:
    """What the stand-in serves and how it misbehaves; changed by the tests while it runs."""

    files: dict[str, bytes]
    commit: str = COMMIT
    cut_after: int | None = None
    """Bytes of the weights after which the connection breaks, once."""
    refuse: tuple[int, str] | None = None
    """Status and X-Error-Code of every answer."""
    breaks_after_cut: bool = False
    """The cut is followed by refusals: the hub is down."""
    broken_blobs: bool = False
    """Answer 500 to whoever asks for the weights."""
    token: str | None = None
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path without query, and Range header."""

    def ranges_of(self, name: str) -> list[str]:
        return [r for method, path, r in self.requests if method == "GET" and path.endswith(name)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args: Any) -> None:
        """Silence on standard error."""

    def do_HEAD(self) -> None:
        self.answer(has_body=False)

    def do_GET(self) -> None:
        self.answer(has_body=True)

    def answer(self, *, has_body: bool) -> None:
        path = self.path.partition("?")[0]
        hub = self.hub
        hub.requests.append((self.command, path, self.headers.get("Range", "")))
        if hub.refuse is not None:
            return self.plain(*hub.refuse)
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self.plain(401, "GatedRepo")
        if path.startswith(f"/api/models/{REPO}/revision/"):
            return self.revision(path.rpartition("/")[2])
        found = re.fullmatch(rf"/{REPO}/resolve/{hub.commit}/(.+)", path)
        if found is None or found[1] not in hub.files:
            return self.plain(404, "RepoNotFound" if found is None else "EntryNotFound")
        self.file(found[1], has_body=has_body)

    def revision(self, name: str) -> None:
        if name not in ("main", self.hub.commit):
            return self.plain(404, "RevisionNotFound")
        siblings = [{"rfilename": n, "size": len(b)} for n, b in self.hub.files.items()]
        self.json({"id": REPO, "modelId": REPO, "sha": self.hub.commit, "siblings": siblings})

    def file(self, name: str, *, has_body: bool) -> None:
        content, start = self.hub.files[name], 0
        if self.hub.broken_blobs and name == WEIGHTS and has_body:
            return self.plain(500, "")
        if wanted := re.match(r"bytes=(\d+)-", self.headers.get("Range", "")):
            start = int(wanted[1])
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", self.hub.commit)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            span = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.send_header("Content-Range", span)
        self.end_headers()
        if has_body:
            self.body(name, content[start:])

    def body(self, name: str, content: bytes) -> None:
        cut = None
        if name == WEIGHTS:
            cut, self.hub.cut_after = self.hub.cut_after, None
        self.wfile.write(content[:cut])
        if cut is not None:
            self.hub.broken_blobs = self.hub.breaks_after_cut
            self.wfile.flush()
            self.connection.shutdown(2)
            self.close_connection = True

    def json(self, value: Any) -> None:
        raw = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def plain(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def served(
    make_model: Callable[..., Path],
    weights: Callable[..., bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Hub]:
    made = make_model(tmp_path / "made")
    files = {f.name: f.read_bytes() for f in made.iterdir()}
    files[WEIGHTS] = weights(("w", "F32", 3_000_000))
    files |= {"tokenizer.json": b"{}", "pytorch_model.bin": b"old", "run.py": b"evil()"}
    state = Hub(files=files)
    handler = type("HubHandler", (Handler,), {"hub": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    # Of a file smaller than one chunk, which is 10 MB, a cut would leave nothing behind.
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16)
    yield state
    server.shutdown()
    server.server_close()


def test_fresh_download_takes_what_is_needed_and_no_more(store: Store, served: Hub) -> None:
    folder = obtain(store, REPO, silent)
    assert folder == store.root / REPO
    names = sorted(f.name for f in folder.iterdir())
    assert names == ["config.json", WEIGHTS, "tokenizer.json"]
    assert (folder / WEIGHTS).read_bytes() == served.files[WEIGHTS]
    assert find(store, REPO) == folder


def test_second_start_asks_the_hub_nothing(store: Store, served: Hub) -> None:
    obtain(store, REPO, silent)
    served.requests.clear()
    obtain(store, REPO, silent)
    assert served.requests == []


def test_bare_name_means_the_default_org(store: Store, served: Hub) -> None:
    assert obtain(replace(store, default_org="owner"), "tiny", silent) == store.root / REPO


def test_progress_ends_complete(store: Store, served: Hub) -> None:
    said: list[tuple[str, float | None]] = []
    obtain(store, REPO, lambda message, fraction: said.append((message, fraction)))
    assert said[0] == (f"downloading {REPO}", 0.0)
    assert said[-1] == (f"downloading {REPO}", 1.0)


def test_cut_connection_goes_on_where_it_broke(store: Store, served: Hub) -> None:
    served.cut_after = 1_000_000
    folder = obtain(store, REPO, silent)
    assert (folder / WEIGHTS).read_bytes() == served.files[WEIGHTS]
    first, *others = served.ranges_of(WEIGHTS)
    assert first == ""
    assert others
    assert all(re.match(r"bytes=\d+-", wanted) for wanted in others)


def test_next_start_fetches_only_what_is_missing(store: Store, served: Hub) -> None:
    served.cut_after, served.breaks_after_cut = 1_000_000, True
    with pytest.raises(StartupError, match="the next try goes on"):
        obtain(store, REPO, silent)
    assert find(store, REPO) is None
    served.broken_blobs = False
    served.requests.clear()
    folder = obtain(store, REPO, silent)
    assert (folder / WEIGHTS).read_bytes() == served.files[WEIGHTS]
    assert [bool(r) for r in served.ranges_of(WEIGHTS)] == [True]
    assert served.ranges_of("/config.json") == []


def test_files_of_two_commits_do_not_mix(store: Store, served: Hub) -> None:
    served.broken_blobs = True
    served.files["extra.json"] = b"{}"
    with pytest.raises(StartupError):
        obtain(store, REPO, silent)
    served.broken_blobs = False
    served.commit = "b" * 40
    del served.files["extra.json"]
    assert not (obtain(store, REPO, silent) / "extra.json").exists()


def test_token_is_sent(store: Store, served: Hub) -> None:
    served.token = "secret"
    bare = replace(store, is_token_bare=True)
    with pytest.raises(ModelMissing, match="is gated"):
        obtain(replace(bare, token="wrong"), REPO, silent)
    assert obtain(replace(bare, token="secret"), REPO, silent).is_dir()


def test_without_tls_no_token_leaves(
    store: Store, served: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither ours nor the one that the library finds by itself."""
    served.token = "secret"
    with pytest.raises(ModelMissing, match="is gated"):
        obtain(replace(store, token="secret"), REPO, silent)
    assert "is not https://: the token is not sent there" in caplog.text
    assert "secret" not in caplog.text
    monkeypatch.setenv("HF_TOKEN", "secret")
    with pytest.raises(ModelMissing, match="is gated"):
        obtain(store, REPO, silent)
    assert obtain(replace(store, is_token_bare=True), REPO, silent).is_dir()


@pytest.mark.parametrize(
    ("argument", "revision", "refuse", "why"),
    [
        pytest.param("owner/none", "main", None, "owner/none is not on the hub", id="no-repo"),
        pytest.param(REPO, "v9", None, "has no revision 'v9'", id="no-revision"),
        pytest.param(REPO, "main", (500, ""), "cannot be downloaded .*500", id="server-error"),
    ],
)
def test_refusal_of_the_hub_is_told_in_words(
    store: Store,
    served: Hub,
    argument: str,
    revision: str,
    refuse: tuple[int, str] | None,
    why: str,
) -> None:
    served.refuse = refuse
    with pytest.raises(StartupError, match=why):
        obtain(replace(store, revision=revision), argument, silent)


def test_hub_that_cannot_be_reached_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StartupError, match=r"owner/tiny cannot be downloaded \(.*refused"):
        obtain(store, REPO, silent)


def test_offline_asks_the_hub_nothing(store: Store, served: Hub) -> None:
    with pytest.raises(ModelMissing, match=r"model\.offline"):
        obtain(replace(store, offline=True), REPO, silent)
    assert served.requests == []


def test_model_type_that_cannot_run_is_refused_before_its_weights(
    store: Store, served: Hub
) -> None:
    served.files["config.json"] = b'{"model_type": "lama"}'
    with pytest.raises(UnsupportedModel, match="nearest supported: llama"):
        obtain(store, REPO, silent)
    assert served.ranges_of(WEIGHTS) == []


def test_a_drafter_need_not_be_a_model_that_can_run(store: Store, served: Hub) -> None:
    model = {
        "store_root": str(store.root),
        "cache_dir": None,
        "default_org": store.default_org,
        "revision": store.revision,
        "hf_token": None,
        "offline": False,
        "allow_insecure_endpoint": False,
    }
    tree = {"draft": {"path": REPO}, "model": model}
    served.files["config.json"] = b'{"model_type": "lama"}'
    with pytest.raises(StartupError, match=r"draft\.path: .*nearest supported: llama"):
        locate_drafter(tree, False, silent)
    served.files["config.json"] = b'{"model_type": "qwen3_5_mtp"}'
    served.commit = "b" * 40
    assert locate_drafter(tree, False, silent) == store.root / REPO
    assert (store.root / REPO / WEIGHTS).is_file()


def test_repository_without_safetensors_is_refused_before_the_download(
    store: Store, served: Hub
) -> None:
    del served.files[WEIGHTS]
    with pytest.raises(ModelMissing, match=r"has no model\*\.safetensors"):
        obtain(store, REPO, silent)
    assert served.ranges_of(".json") == []


def test_space_is_asked_for_before_the_download(
    store: Store, served: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub.space, "free_bytes", lambda path: 1_000_000)
    with pytest.raises(NoSpace, match="1000000 bytes are free"):
        obtain(store, REPO, silent)
    assert served.ranges_of(WEIGHTS) == []
