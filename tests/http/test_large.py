"""Large bodies and large answers are worked on beside the loop that serves everybody."""

import threading
from types import ModuleType
from typing import Any

import pytest

from mlxcel.core.events import Accepted, Likely, TextDelta, TokenLogprobs
from mlxcel.http import generate, reading
from tests.http.site import BODY, ENDING, Site

pytestmark = pytest.mark.asyncio
CHAT = "/v1/chat/completions"
PAD = " " * (
    reading.LARGE_BODY_BYTES - len('{"model":"m","messages":[{"role":"user","content":"x"}]}')
)
LOOP, BESIDE = "MainThread", "bodies"


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The thread that parsed the last body, and the one that wrote the last answer."""
    found: dict[str, str] = {}

    def seen(module: ModuleType, name: str) -> None:
        do = getattr(module, name)

        def call(*args: Any, **named: Any) -> Any:
            found[name] = threading.current_thread().name.partition("_")[0]
            return do(*args, **named)

        monkeypatch.setattr(module, name, call)

    seen(reading, "json_object")
    seen(generate, "json_reply")
    return found


@pytest.mark.parametrize(
    ("more", "place"),
    [pytest.param("", LOOP, id="as-large-as-may-be"), pytest.param(" ", BESIDE, id="larger")],
)
async def test_large_body_is_read_on_a_thread(
    site: Site, places: dict[str, str], more: str, place: str
) -> None:
    content = '{"model":"m","messages":[{"role":"user","content":"x"}]}' + PAD + more
    response = await site.http.post(
        CHAT, content=content, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 200
    assert places == {"json_object": place, "json_reply": LOOP}
    assert site.generator.requests[0].id == response.json()["id"]


@pytest.mark.parametrize(
    ("content", "kind", "status", "says"),
    [
        pytest.param(BODY, "text/plain", 415, "Content-Type", id="kind"),
        pytest.param("{", "application/json", 400, "not JSON", id="no-json"),
        pytest.param('{"model":"m","messages":[],"n":"x"}', "application/json", 400, "n: ", id="n"),
    ],
)
async def test_errors_of_a_large_body_are_those_of_a_small_one(
    site: Site, content: Any, kind: str, status: int, says: str
) -> None:
    told = []
    for pad in ("", PAD + " " * 100):
        response = await site.http.post(
            CHAT, content=str(content) + pad, headers={"Content-Type": kind}
        )
        told.append((response.status_code, response.json()["error"]["type"]))
        assert says in response.json()["error"]["message"]
    assert told == [(status, "invalid_request_error")] * 2


@pytest.mark.parametrize(
    ("tokens", "place"),
    [
        pytest.param(generate.LARGE_ANSWER_ENTRIES // 2, LOOP, id="as-large-as-may-be"),
        pytest.param(generate.LARGE_ANSWER_ENTRIES // 2 + 1, BESIDE, id="larger"),
    ],
)
async def test_large_answer_is_written_on_a_thread(
    site: Site, places: dict[str, str], tokens: int, place: str
) -> None:
    said = Likely("a", -0.5, b"a")
    entries = (TokenLogprobs(said, (said,)),) * tokens
    site.generator.script = [Accepted(3), TextDelta("a" * tokens, logprobs=entries), *ENDING]
    response = await site.post(BODY | {"logprobs": True, "top_logprobs": 1})
    assert places == {"json_object": LOOP, "json_reply": place}
    assert len(response.json()["choices"][0]["logprobs"]["content"]) == tokens
