"""Route rows: names that must resolve, and rows that are switched off."""

import pytest

from mlxcel.config.asked import Asked
from mlxcel.config.compose import compose
from mlxcel.core.errors import StartupError
from mlxcel.http.handlers import find_handlers
from mlxcel.http.options import read_options
from mlxcel.http.routes import read_rows
from tests.http.site import ROWS, Start

HANDLERS = find_handlers()


def test_every_shipped_row_resolves() -> None:
    rows = {row.id: row for row in read_rows(ROWS, HANDLERS)}
    assert rows["chat_completions"].paths == ("/v1/chat/completions", "/chat/completions")
    assert rows["health"].is_open
    assert {row.handler for row in rows.values()} == set(HANDLERS.values())


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        pytest.param({"handler": "generat"}, "nearest: generate", id="handler"),
        pytest.param({"handler": "setings.show"}, "nearest: settings.show", id="handler-module"),
        pytest.param({"handler": "models._x"}, "is no handler", id="handler-private"),
        pytest.param({"codec": "openai.chatt"}, "no module", id="codec"),
        pytest.param({"codec": "nobody.chat"}, "no module", id="codec-package"),
        pytest.param({"codec": None}, "codec is missing", id="generate-without-codec"),
        pytest.param({"dialect": "klingon"}, "no module", id="dialect"),
    ],
)
def test_a_name_that_does_not_resolve_stops_the_start(
    changed: dict[str, str | None], says: str
) -> None:
    row = ROWS["chat_completions"] | changed
    with pytest.raises(StartupError, match=says):
        read_rows({"chat": row}, HANDLERS)


def test_the_shipped_server_section_is_read() -> None:
    tree = compose(Asked(overrides=("model=echo", "server.sse_ping_interval=-1"))).tree
    limits = tree["limits"]
    options = read_options(
        tree["server"]
        | {"routes": tree["routes"], "sampling": tree["generation"]["sampling"]}
        | {"metrics_port": tree["observability"]["metrics_port"]}
        | {"reasoning_alias": tree["generation"]["reasoning"]["alias_field"]}
        | {name: limits[name] for name in ("body_bytes", "http_timeout_secs", "websocket_secs")}
        | {name: limits[name] for name in ("responses_store", "conversation_store")}
        | {name: tree["generation"][name] for name in ("grammar", "json_schema")}
        | {name: tree["cache"][name] for name in ("keep", "kv", "max_kv_size")}
    )
    assert (options.host, options.port) == ("127.0.0.1", 8080)
    assert (options.ping_interval_s, options.body_bytes) == (None, limits["body_bytes"])
    assert options.cors.origins == ()  # nothing said: any
    assert "chat_completions" in options.routes["rows"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("switch", "status"),
    [
        pytest.param(True, 200, id="on"),
        pytest.param(False, 404, id="off"),
        pytest.param("auto", 404, id="undecided"),
    ],
)
async def test_where_the_settings_routes_are_on(
    start: Start, switch: bool | str, status: int
) -> None:
    site = await start(routes={"settings": switch})
    for path in ("/v1/settings", "/settings"):
        assert (await site.http.get(path)).status_code == status
        patched = await site.http.patch(path, json=[])
        assert patched.status_code == (400 if status == 200 else 404)


@pytest.mark.asyncio
@pytest.mark.parametrize("when", ["routes.slot", "settings", "server.settings"])
async def test_a_switch_that_does_not_exist_stops_the_start(start: Start, when: str) -> None:
    rows = ROWS | {"health": ROWS["health"] | {"when": when}}
    with pytest.raises(StartupError, match=f"{when}: there is no such switch"):
        await start(routes={"rows": rows})


@pytest.mark.asyncio
async def test_a_route_that_is_off_is_gone_or_says_how_it_is_switched_on(start: Start) -> None:
    off = {"when": "routes.settings", "off": "start the server with --this"}
    rows = ROWS | {"health": ROWS["health"] | off}
    site = await start(routes={"rows": rows, "settings": False})
    refused = await site.http.get("/health")
    assert refused.status_code == 501
    assert refused.json()["error"]["message"] == "start the server with --this"
    assert (await site.http.get("/v1/settings")).status_code == 404
    shown = await start(routes={"rows": rows, "settings": True})
    assert (await shown.http.get("/health")).status_code == 200


@pytest.mark.asyncio
async def test_a_row_without_its_need_is_unsupported_or_hidden(start: Start) -> None:
    rows = ROWS | {"models": ROWS["models"] | {"absent": "hide"}}
    site = await start(routes={"rows": rows}, generate=None)
    refused = await site.post()
    assert (refused.status_code, refused.json()["error"]["type"]) == (501, "not_implemented")
    assert (await site.http.get("/v1/models")).status_code == 404
    assert (await site.http.get("/health")).json()["model"] is None
    shown = await start(routes={"rows": rows})
    assert (await shown.http.get("/v1/models")).status_code == 200
