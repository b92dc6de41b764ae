"""The settings routes over the real store: transactions, history, and what they reach. The
contract's own test list is in test_settings_contract."""

from typing import Any

import pytest
import pytest_asyncio

from mlxcel.config.asked import Asked
from mlxcel.config.compose import compose
from mlxcel.config.settings import SettingsStore
from tests.http.site import Site, Start

pytestmark = pytest.mark.asyncio
SETTINGS = "/v1/settings"


@pytest.fixture(scope="module")
def tree() -> dict[str, Any]:
    composed = compose(Asked(overrides=("model=echo", "server.api_keys=[very-secret]")))
    return dict(composed.tree)


@pytest.fixture
def store(tree: dict[str, Any]) -> SettingsStore:
    return SettingsStore.from_tree(tree)


@pytest_asyncio.fixture
async def open_site(start: Start, store: SettingsStore) -> Site:
    return await start(settings=store)


async def read(site: Site, path: str = SETTINGS) -> dict[str, Any]:
    return (await site.http.get(path)).json()  # type: ignore[no-any-return]


async def test_get_has_three_keys_on_both_paths(open_site: Site) -> None:
    body = await read(open_site)
    assert set(body) == {"schema", "current", "fingerprint"}
    assert await read(open_site, "/settings") == body
    assert (await open_site.http.head(SETTINGS)).status_code == 200


async def test_a_patch_reaches_the_next_request_without_a_restart(open_site: Site) -> None:
    await open_site.http.patch(SETTINGS, json={"default_max_tokens": 9, "default_seed": 5})
    await open_site.post()
    request = open_site.generator.requests[-1]
    assert (request.max_tokens, request.sampling.seed) == (9, 5)


async def test_all_names_refused_is_still_200(open_site: Site) -> None:
    response = await open_site.http.patch(SETTINGS, json={"nope": 1})
    assert (response.status_code, response.json()["applied"]) == (200, {})


async def test_an_atomic_patch_is_all_or_nothing(open_site: Site) -> None:
    before = await read(open_site)
    patch = {"atomic": True, "values": {"default_seed": 7, "nope": 1}}
    response = await open_site.http.patch(SETTINGS, json=patch)
    assert response.status_code == 409
    assert response.json()["rejected"] == [{"name": "nope", "reason": "unknown setting"}]
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert await read(open_site) == before


async def test_if_match_guards_against_lost_updates(open_site: Site) -> None:
    etag = (await open_site.http.get(SETTINGS)).headers["etag"]
    first = await open_site.http.patch(
        SETTINGS, json={"default_seed": 1}, headers={"If-Match": etag}
    )
    late = await open_site.http.patch(
        SETTINGS, json={"default_seed": 2}, headers={"If-Match": etag}
    )
    assert (first.status_code, late.status_code) == (200, 412)
    assert (await read(open_site))["current"]["default_seed"] == 1
    fresh = {"If-Match": first.headers["etag"]}
    again = await open_site.http.patch(SETTINGS, json={"default_seed": 2}, headers=fresh)
    assert again.status_code == 200


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        pytest.param(b"{", {"Content-Type": "application/json"}, 400, id="cut-off"),
        pytest.param(b"", {"Content-Type": "application/json"}, 400, id="empty"),
        pytest.param(b"{}", {}, 415, id="no-content-type"),
    ],
)
async def test_a_body_that_is_no_json_has_the_usual_envelope(
    open_site: Site, content: bytes, headers: dict[str, str], status: int
) -> None:
    response = await open_site.http.patch(SETTINGS, content=content, headers=headers)
    assert (response.status_code, set(response.json()["error"])) == (
        status,
        {"message", "type", "param", "code"},
    )


async def test_changes_are_kept_and_undone(open_site: Site) -> None:
    startup = await read(open_site)
    await open_site.http.patch(SETTINGS, json={"default_seed": 1})
    await open_site.http.patch(SETTINGS, json={"default_seed": 2})
    history = (await open_site.http.get(SETTINGS + "/history")).json()["history"]
    assert len(history) == 2
    undone = await open_site.http.post(SETTINGS + "/revert")
    assert undone.json()["current"]["default_seed"] == 1
    back = await open_site.http.post(SETTINGS + "/revert", json={"version": history[0]["version"]})
    assert back.status_code == 200
    assert (await read(open_site))["fingerprint"] == startup["fingerprint"]


async def test_a_revert_to_a_version_that_never_was_is_404(open_site: Site) -> None:
    response = await open_site.http.post(SETTINGS + "/revert", json={"version": 99})
    assert response.status_code == 404
