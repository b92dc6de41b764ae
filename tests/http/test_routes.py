"""Route rows: names that must resolve, and rows that are switched off."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from mlxcel.config.asked import Asked
from mlxcel.config.compose import compose
from mlxcel.core.errors import StartupError
from mlxcel.http.handlers import HANDLERS
from mlxcel.http.options import read_options
from mlxcel.http.routes import read_rows
from tests.http.site import ROWS, Scripted, Start

SHIPPED = Path(__file__).parents[2] / "conf" / "routes" / "rows"


def shipped_rows() -> dict[str, Any]:
    files = [yaml.safe_load(path.read_text()) for path in sorted(SHIPPED.glob("*.yaml"))]
    return {name: row for rows in files for name, row in rows.items()}


def test_every_shipped_row_resolves() -> None:
    rows = {row.id: row for row in read_rows(shipped_rows(), HANDLERS)}
    assert rows["chat_completions"].paths == ("/v1/chat/completions", "/chat/completions")
    assert rows["health"].is_open
    assert {row.handler for row in rows.values()} == set(HANDLERS.values())


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        pytest.param({"handler": "generat"}, "nearest: generate", id="handler"),
        pytest.param({"codec": "openai.chatt"}, "no module", id="codec"),
        pytest.param({"codec": "nobody.chat"}, "no module", id="codec-package"),
        pytest.param({"dialect": "klingon"}, "no module", id="dialect"),
    ],
)
def test_a_name_that_does_not_resolve_stops_the_start(changed: dict[str, str], says: str) -> None:
    row = ROWS["chat_completions"] | changed
    with pytest.raises(StartupError, match=says):
        read_rows({"chat": row}, HANDLERS)


def test_the_shipped_server_section_is_read() -> None:
    tree = compose(Asked(overrides=("model=echo", "server.sse_ping_interval=-1"))).tree
    limits = tree["limits"]
    options = read_options(
        tree["server"]
        | {"routes": tree["routes"]}
        | {name: limits[name] for name in ("body_bytes", "http_timeout_secs")}
    )
    assert (options.host, options.port, options.is_loopback) == ("127.0.0.1", 8080, True)
    assert (options.ping_interval_s, options.body_bytes) == (None, limits["body_bytes"])
    assert options.cors.origins == ("*",)
    assert "chat_completions" in options.routes["rows"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("changed", "status"),
    [
        pytest.param({}, 200, id="loopback"),
        pytest.param({"host": "0.0.0.0"}, 404, id="open-listener"),
        pytest.param({"host": "0.0.0.0", "api_keys": ["k"]}, 200, id="open-listener-with-key"),
        pytest.param({"host": "0.0.0.0", "routes": {"settings": True}}, 200, id="forced-on"),
        pytest.param({"routes": {"settings": False}}, 404, id="forced-off"),
        pytest.param({"host": "localhost"}, 200, id="localhost"),
    ],
)
async def test_where_the_settings_routes_are_on(
    start: Start, changed: dict[str, Any], status: int
) -> None:
    site = await start(**changed)
    port = site.address.rsplit(":", 1)[1]
    for path in ("/v1/settings", "/settings"):
        url, key = f"http://127.0.0.1:{port}{path}", {"X-Api-Key": "k"}
        assert (await site.http.get(url, headers=key)).status_code == status
        patched = await site.http.patch(url, headers=key, json=[])
        assert patched.status_code == (400 if status == 200 else 404)


@pytest.mark.asyncio
async def test_a_switch_that_does_not_exist_stops_the_start(start: Start) -> None:
    rows = ROWS | {"health": ROWS["health"] | {"when": "routes.slots"}}
    with pytest.raises(StartupError, match=r"routes\.slots: there is no such switch"):
        await start(routes={"rows": rows})


@pytest.mark.asyncio
async def test_a_row_that_hides_is_absent_without_its_need(
    start: Start, generator: Scripted
) -> None:
    rows = ROWS | {"models": ROWS["models"] | {"absent": "hide"}}
    hidden = await start(routes={"rows": rows}, generate=None)
    assert (await hidden.http.get("/v1/models")).status_code == 404
    shown = await start(routes={"rows": rows})
    assert (await shown.http.get("/v1/models")).status_code == 200
