"""Routes for whoever operates a server, over a real one: slots, props, adapters, tokens."""

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio

from mlxcel import __version__
from mlxcel.core.byte_vocab import BOS, END
from mlxcel.core.ports import ModelFacts, TemplateAbilities
from mlxcel.core.sampling import SamplingParams
from mlxcel.core.settings import Settings
from mlxcel.core.status import MtpPolicyReport, MtpState, MtpVerdict, State, WorkerStats
from mlxcel.generation.adapters import Adapters
from mlxcel.generation.slot_table import SlotTable
from mlxcel.generation.slots import Slots
from mlxcel.generation.text_tools import TextTools
from mlxcel.link.messages import RowStarted, RowTokens, SetLora, Submit, Warm, pack_tokens
from mlxcel.text.tokenizer import byte_text_model
from tests.generation.scripted import request as request_of
from tests.http.site import INFO, Scripted, Site, Start
from tests.settings import settings

pytestmark = pytest.mark.asyncio
SLOTS = 2
CAPS = [
    "supports_string_content",
    "supports_typed_content",
    "supports_tools",
    "supports_tool_calls",
    "supports_parallel_tool_calls",
    "supports_system_role",
    "supports_preserve_reasoning",
    "supports_reasoning_effort",
    "supports_object_arguments",
]
PROPS = [
    "default_generation_settings",
    "total_slots",
    "model_alias",
    "model_ftype",
    "model_path",
    "modalities",
    "media_marker",
    "endpoint_slots",
    "endpoint_props",
    "endpoint_metrics",
    "endpoint_settings",
    "ui",
    "ui_settings",
    "chat_template",
    "chat_template_caps",
    "bos_token",
    "eos_token",
    "build_info",
    "is_sleeping",
    "cors_proxy_enabled",
    "kv_cache_mode",
    "kv_bits",
    "speculative",
    "geometry",
    "capabilities",
]
"""The keys of the interface; `precision` is ours."""


FACTS = ModelFacts(
    path="/models/tiny",
    chat_template="{{ messages }}",
    abilities=TemplateAbilities(tools=True),
    bos_token="<s>",
    eos_token="</s>",
    has_tool_parser=True,
    weights_type="MLX Q4",
)


class Operated(Scripted):
    """With slots, adapters and a tokenizer that speaks bytes."""

    text = TextTools(byte_text_model())

    def __init__(self, *, fuse: bool = False) -> None:
        super().__init__()
        self.facts = FACTS
        self.told: list[SetLora] = []
        section = {
            "adapters": [{"path": "/a", "scale": 1.0}, {"path": "/b", "scale": 0.5}],
            "init_without_apply": False,
            "fuse": fuse,
        }
        self.adapters = Adapters.of(section, chat=self)
        self.table = SlotTable(lambda: SLOTS)
        self.slots = Slots.of(
            self.table, chat=self, text=byte_text_model(), folder=None, model=None, name="tiny"
        )

    def warm(self, message: Warm, /) -> None: ...

    def set_lora(self, message: SetLora, /) -> None:
        self.told.append(message)

    def begin(self, name: str, prompt: bytes, said: bytes) -> None:
        submit = Submit(
            id=name,
            tokens=pack_tokens(list(prompt)),
            sampling=SamplingParams(),
            max_tokens=20,
            eos_ids=(),
        )
        self.table.took(name, submit, request_of(stop=("!",)))
        self.table.heard(RowStarted(name, 0.0, 0.0))
        self.table.heard(RowTokens(id=name, ids=list(said)))


@pytest.fixture
def operated() -> Operated:
    return Operated()


@pytest_asyncio.fixture
async def open_site(start: Start, operated: Operated) -> Site:
    return await start(generate=operated, routes={"props": True})


def failure(response: httpx.Response) -> tuple[int, str, str]:
    """Status, type and message of an error whose `code` is the status."""
    error = response.json()["error"]
    assert set(error) == {"code", "message", "type"}
    assert error["code"] == response.status_code
    return response.status_code, error["type"], error["message"]


# Slots.


async def test_slots_that_never_worked(open_site: Site) -> None:
    response = await open_site.http.get("/slots")
    bare = {"n_ctx": 512, "context_size": 512, "speculative": False, "is_processing": False}
    assert response.json() == [{"id": 0} | bare, {"id": 1} | bare]


async def test_a_slot_at_work_and_afterwards(open_site: Site, operated: Operated) -> None:
    operated.begin("r1", b"abc", b"d\ne")
    busy = (await open_site.http.get("/slots")).json()[0]
    params = busy.pop("params")
    assert busy == {
        "id": 0,
        "n_ctx": 512,
        "context_size": 512,
        "speculative": False,
        "is_processing": True,
        "id_task": 0,
        "n_prompt_tokens": 3,
        "n_prompt_tokens_processed": 3,
        "n_prompt_tokens_cache": 0,
        "next_token": [
            {"has_next_token": True, "has_new_line": True, "n_remain": 17, "n_decoded": 3}
        ],
    }
    assert (params["stop"], params["max_tokens"], params["temperature"]) == (["!"], 20, 1.0)
    assert not {"stream", "timings_per_token"} & set(params)
    operated.table.left("r1")
    idle = (await open_site.http.get("/slots")).json()[0]
    assert (idle["is_processing"], idle["id_task"], idle["n_prompt_tokens"]) == (False, 0, 3)
    assert idle["next_token"][0]["has_next_token"] is False


async def test_words_are_shown_when_the_operator_says_so(start: Start, operated: Operated) -> None:
    operated.begin("r1", b"abc", b"de")
    quiet = await start(generate=operated)
    assert not {"prompt", "generated"} & set((await quiet.http.get("/slots")).json()[0])
    open_site = await start(generate=operated, routes={"slots_debug": True})
    slots = (await open_site.http.get("/slots")).json()
    assert (slots[0]["prompt"], slots[0]["generated"]) == ("abc", "de")
    assert "prompt" not in slots[1]


async def test_whoever_wants_a_free_slot_is_told_when_there_is_none(
    open_site: Site, operated: Operated
) -> None:
    operated.begin("r1", b"a", b"b")
    assert (await open_site.http.get("/slots?fail_on_no_slot=1")).status_code == 200
    operated.begin("r2", b"a", b"b")
    refused = await open_site.http.get("/slots?fail_on_no_slot=0")
    assert failure(refused) == (503, "unavailable_error", "no slot available")
    for query in ("", "?fail_on_no_slot="):
        assert (await open_site.http.get(f"/slots{query}")).status_code == 200


# Switches.


@pytest.mark.parametrize(
    ("method", "path", "off", "flag"),
    [
        ("GET", "/slots", {"slots": False}, "--no-slots"),
        ("GET", "/props", {"props": False}, "--props"),
        ("POST", "/props", {"props": False}, "--props"),
    ],
)
async def test_what_is_off_says_how_it_is_switched_on(
    start: Start, operated: Operated, method: str, path: str, off: dict[str, bool], flag: str
) -> None:
    site = await start(generate=operated, routes=off, api_keys=["k"])
    assert (await site.http.request(method, path)).status_code == 401
    keyed = {"Authorization": "Bearer k"}
    status, kind, message = failure(await site.http.request(method, path, headers=keyed))
    assert (status, kind) == (501, "not_supported_error")
    assert flag in message


# Props.


async def test_every_property_has_its_place(open_site: Site) -> None:
    body = (await open_site.http.get("/props")).json()
    assert set(body) == {*PROPS, "precision"}
    shown = {name: body[name] for name in body if name not in ("default_generation_settings",)}
    assert shown == {
        "total_slots": 4,
        "model_alias": "tiny",
        "model_ftype": "MLX Q4",
        "model_path": "/models/tiny",
        "precision": INFO.precision,
        "modalities": {"vision": False, "video": False, "audio": False},
        "media_marker": None,
        "endpoint_slots": True,
        "endpoint_props": True,
        "endpoint_metrics": False,
        "endpoint_settings": True,
        "ui": False,
        "ui_settings": {},
        "chat_template": "{{ messages }}",
        "chat_template_caps": {name: name == "supports_tools" for name in CAPS},
        "bos_token": "<s>",
        "eos_token": "</s>",
        "build_info": f"mlxcel-{__version__}",
        "is_sleeping": False,
        "cors_proxy_enabled": False,
        "kv_cache_mode": "fp16",
        "kv_bits": None,
        "speculative": {"model": None, "kind": None, "n_max": 0},
        "geometry": {"n_batch": 0, "n_ubatch": 0, "n_batch_decode": 4, "n_kv_max": 0},
        "capabilities": {"generation": True},
    }


def with_temperature(value: float) -> Settings:
    still = settings()
    return replace(still, sampling=replace(still.sampling, temperature=value))


async def test_the_defaults_are_those_of_this_moment(start: Start, operated: Operated) -> None:
    class Changing:
        current = with_temperature(0.25)

    live: Any = Changing()
    site = await start(generate=operated, settings=live, routes={"props": True})
    shown = (await site.http.get("/props")).json()["default_generation_settings"]
    assert (shown["n_ctx"], shown["params"]["temperature"]) == (512, 0.25)
    live.current = with_temperature(0.5)
    shown = (await site.http.get("/props")).json()["default_generation_settings"]
    assert shown["params"]["temperature"] == 0.5


async def test_a_post_changes_nothing_and_reads_nothing(open_site: Site) -> None:
    response = await open_site.http.post("/props", content=b"{not json")
    assert (response.status_code, response.json()) == (200, {"success": True})


# Adapters.


def adapter(number: int, path: str, scale: float) -> dict[str, Any]:
    return {"id": number, "path": path, "scale": scale, "task_name": "", "prompt_prefix": ""}


@pytest.mark.parametrize(
    ("sent", "is_refused"),
    [
        pytest.param([{"id": 0, "scale": 1.0}, {"id": 1, "scale": 0.5}], False, id="in-force"),
        pytest.param(
            [{"id": 1, "scale": 0.5}, {"id": 0, "scale": 1}, {"id": 7, "scale": 2}],
            False,
            id="unknown-beside",
        ),
        pytest.param([{"id": 0, "scale": 1.0}], True, id="one-left-out"),
        pytest.param([], True, id="none"),
        pytest.param([{"id": 0, "scale": 0.9}, {"id": 1, "scale": 0.5}], True, id="other"),
    ],
)
async def test_merged_adapters_are_asked_for_as_they_are(
    start: Start, sent: list[dict[str, float]], is_refused: bool
) -> None:
    """Before what is wrong with a later field; and before there is a place in the queue."""
    site = await start(generate=Operated(fuse=True))
    body = {"prompt": "hi", "lora": sent, "sse_ping_interval": 0}
    response = await site.http.post("/completion", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (
        400,
        "lora" if is_refused else "sse_ping_interval",
    )


async def test_adapters_are_listed_and_scaled(open_site: Site, operated: Operated) -> None:
    listed = await open_site.http.get("/lora-adapters")
    assert listed.json() == [adapter(0, "/a", 1.0), adapter(1, "/b", 0.5)]
    wanted = [{"id": 1, "scale": 2}, {"id": 9, "scale": 1}]
    changed = await open_site.http.post("/lora-adapters", json=wanted)
    assert (changed.status_code, changed.json()) == (200, {"success": True})
    listed = await open_site.http.get("/lora-adapters")
    assert listed.json() == [adapter(0, "/a", 0.0), adapter(1, "/b", 2.0)]
    assert operated.told == [SetLora(((0, 0.0), (1, 2.0)))]


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"[", b'"x"', b"\xff"], ids=repr)
async def test_scales_are_an_array(open_site: Site, operated: Operated, body: bytes) -> None:
    refused = await open_site.http.post("/lora-adapters", content=body)
    expected = (400, "invalid_request_error", "Request body must be an array")
    assert failure(refused) == expected
    assert operated.told == []


@pytest.mark.parametrize(
    "entry",
    [7, {}, {"id": 0}, {"scale": 1}, {"id": True, "scale": 1}, {"id": 0, "scale": "1"}],
    ids=repr,
)
async def test_entries_that_say_no_scale_change_nothing(
    open_site: Site, operated: Operated, entry: object
) -> None:
    refused = await open_site.http.post("/lora-adapters", json=[{"id": 1, "scale": 2}, entry])
    status, kind, message = failure(refused)
    assert (status, kind) == (400, "invalid_request_error")
    assert "lora.1" in message
    assert operated.told == []


async def test_merged_adapters_take_the_scales_they_have_and_no_others(start: Start) -> None:
    site = await start(generate=Operated(fuse=True))
    same = [{"id": 0, "scale": 1}, {"id": 1, "scale": 0.5}]
    assert (await site.http.post("/lora-adapters", json=same)).json() == {"success": True}
    status, kind, message = failure(await site.http.post("/lora-adapters", json=same[:1]))
    assert (status, kind) == (501, "not_supported_error")
    assert "model.lora.fuse" in message


# Tokens.


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        pytest.param({}, [], id="absent"),
        pytest.param({"content": None}, [], id="null"),
        pytest.param({"content": []}, [], id="empty"),
        pytest.param({"content": "ab<|end|>"}, [97, 98, END], id="text"),
        pytest.param({"content": "a", "add_special": True}, [BOS, 97], id="added"),
        pytest.param(
            {"content": ["a", "b"], "add_special": True}, [BOS, 97, 98], id="added-to-the-first"
        ),
        pytest.param({"content": [98, "a"], "add_special": True}, [98, 97], id="first-is-an-id"),
        pytest.param(
            {"content": "<|end|>", "parse_special": False}, list(b"<|end|>"), id="as-plain-text"
        ),
        pytest.param(
            {"content": "a", "add_special": None, "parse_special": None, "with_pieces": None},
            [97],
            id="nulls",
        ),
        pytest.param({"content": "a", "model": 7, "new": {}}, [97], id="unknown-fields"),
    ],
)
async def test_texts_become_tokens(open_site: Site, body: Any, tokens: list[int]) -> None:
    response = await open_site.http.post("/tokenize", json=body)
    assert (response.status_code, response.json()) == (200, {"tokens": tokens})


async def test_pieces_are_texts_or_bytes(open_site: Site) -> None:
    body = {"content": ["hä", END], "with_pieces": True}
    response = await open_site.http.post("/tokenize", json=body)
    assert response.json()["tokens"] == [
        {"id": 104, "piece": "h"},
        {"id": 0xC3, "piece": [0xC3]},
        {"id": 0xA4, "piece": [0xA4]},
        {"id": END, "piece": "<|end|>"},
    ]


@pytest.mark.parametrize(
    ("body", "tokens"),
    [({}, ""), ({"tokens": None}, ""), ({"tokens": [104, 0xC3, END]}, "h\ufffd<|end|>")],
)
async def test_tokens_become_a_text(open_site: Site, body: Any, tokens: str) -> None:
    response = await open_site.http.post("/detokenize", json=body)
    assert (response.status_code, response.json()) == (200, {"content": tokens})


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"content": 7}, "content"),
        ("/tokenize", {"content": {}}, "content"),
        ("/tokenize", {"content": ["a", 1.5]}, "content.1"),
        ("/tokenize", {"content": [True]}, "content.0"),
        ("/tokenize", {"content": [None]}, "content.0"),
        ("/tokenize", {"content": [999_999]}, "content.0"),
        ("/tokenize", {"content": "a", "add_special": 1}, "add_special"),
        ("/tokenize", {"content": "a", "with_pieces": "yes"}, "with_pieces"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens.0"),
        ("/detokenize", {"tokens": [97, True]}, "tokens.1"),
        ("/detokenize", {"tokens": [97.0]}, "tokens.0"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [2**63]}, "tokens"),
    ],
    ids=json.dumps,
)
async def test_what_is_no_text_and_no_token(
    open_site: Site, path: str, body: Any, param: str
) -> None:
    refused = await open_site.http.post(path, json=body)
    error = refused.json()["error"]
    assert (refused.status_code, error["type"]) == (400, "invalid_request_error")
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param


async def test_a_long_text_is_the_same_tokens(open_site: Site) -> None:
    response = await open_site.http.post("/tokenize", json={"content": "a" * 40_000})
    assert response.json() == {"tokens": [97] * 40_000}


async def test_tokens_need_no_worker(open_site: Site, operated: Operated) -> None:
    operated.state = State.RESTARTING
    response = await open_site.http.post("/tokenize", json={"content": "a"})
    assert response.json() == {"tokens": [97]}


# What is not served, and what is not there yet.


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/tools", "/cors-proxy"])
async def test_a_feature_of_the_other_server_is_refused(
    open_site: Site, method: str, path: str
) -> None:
    response = await open_site.http.request(method, f"{path}?url=http://x", content=None)
    assert response.status_code == 403
    assert response.content == (
        b'{"error":{"message":"this feature is disabled","type":"feature_disabled"}}'
    )


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (State.OK, "no_mtp_dispatch"),
        (State.LOADING, "worker_not_ready"),
        (State.RESTARTING, "worker_not_ready"),
    ],
)
async def test_the_policy_of_what_does_not_exist(
    open_site: Site, operated: Operated, state: State, reason: str
) -> None:
    operated.state = state
    body = (await open_site.http.get("/v1/internal/mtp-policy")).json()
    assert body == {
        "schema_version": 1,
        "state": "unavailable",
        "reason": reason,
        "decline_detail": None,
        "verdict": None,
        "mtp_enabled": None,
        "target": None,
        "drafter": None,
        "hardware": None,
        "block_size": None,
        "acceptance_rate": None,
        "samples": 0,
        "samples_required": 0,
        "samples_remaining": None,
    }


async def test_the_policy_of_a_drafter_that_has_one(open_site: Site, operated: Operated) -> None:
    operated.stats = WorkerStats(
        slots=SLOTS,
        mtp_policy=MtpPolicyReport(
            state=MtpState.SETTLED, verdict=MtpVerdict.ENABLE, mtp_enabled=True, samples=4
        ),
    )
    body = (await open_site.http.get("/v1/internal/mtp-policy")).json()
    assert (body["state"], body["verdict"], body["mtp_enabled"]) == ("settled", "enable", True)
    health = (await open_site.http.get("/health")).json()
    assert health["observability"]["mtp_policy"] == body
