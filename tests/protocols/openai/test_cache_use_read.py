"""Whose prompt cache a request uses, and whether: at the root, flattened or nested."""

from typing import Any

import pytest

from mlxcel.core.cache import ANONYMOUS, CacheUse
from mlxcel.core.errors import BadField
from tests.protocols.openai.reading import chat_read


def cache_use(sent: dict[str, Any]) -> CacheUse:
    return chat_read(**sent).request.cache


@pytest.mark.parametrize(
    ("sent", "is_on"),
    [
        pytest.param({}, True, id="absent"),
        pytest.param({"cache_prompt": True}, True, id="true"),
        pytest.param({"cache_prompt": False}, False, id="root-or-flattened"),
        pytest.param({"cache_prompt": None}, True, id="null"),
        pytest.param({"extra_body": {"cache_prompt": False}}, False, id="nested"),
        pytest.param(
            {"cache_prompt": None, "extra_body": {"cache_prompt": False}}, False, id="null-falls"
        ),
        pytest.param(
            {"cache_prompt": True, "extra_body": {"cache_prompt": False}}, True, id="root-wins"
        ),
        pytest.param({"extra_body": {"cache_prompt": "no"}}, True, id="nested-wrong-type"),
        pytest.param({"extra_body": {"cache_prompt": 0}}, True, id="nested-zero-is-no-boolean"),
    ],
)
def test_cold_is_what_says_false(sent: dict[str, Any], is_on: bool) -> None:
    assert cache_use(sent) == CacheUse(is_on=is_on)


@pytest.mark.parametrize(
    ("sent", "session"),
    [
        pytest.param({}, ANONYMOUS, id="nobody"),
        pytest.param({"prompt_cache_key": "k"}, "k", id="key"),
        pytest.param({"user": "u"}, "u", id="user"),
        pytest.param({"user": "u", "prompt_cache_key": "k"}, "k", id="key-beats-user"),
        pytest.param({"user": "u", "prompt_cache_key": ""}, "u", id="empty-key-falls-through"),
        pytest.param({"user": "u", "prompt_cache_key": None}, "u", id="null-key-falls-through"),
        pytest.param({"user": "", "prompt_cache_key": ""}, ANONYMOUS, id="both-empty"),
        pytest.param({"extra_body": {"prompt_cache_key": "k"}}, "k", id="nested-key"),
        pytest.param({"extra_body": {"user": "u"}}, "u", id="nested-user"),
        pytest.param(
            {"user": "u", "extra_body": {"prompt_cache_key": "k"}}, "k", id="nested-key-beats-user"
        ),
        pytest.param(
            {"prompt_cache_key": "r", "extra_body": {"prompt_cache_key": "k"}}, "r", id="root-wins"
        ),
        pytest.param(
            {"prompt_cache_key": "", "extra_body": {"prompt_cache_key": "k"}},
            "k",
            id="empty-root-falls-to-nested",
        ),
        pytest.param({"extra_body": {"prompt_cache_key": ""}, "user": "u"}, "u", id="nested-empty"),
        pytest.param({"extra_body": {"prompt_cache_key": 7}, "user": "u"}, "u", id="nested-wrong"),
        pytest.param({"extra_body": {"user": ["u"]}}, ANONYMOUS, id="nested-wrong-user"),
    ],
)
def test_session_is_the_first_name_that_is_there(sent: dict[str, Any], session: str) -> None:
    assert cache_use(sent) == CacheUse(session=session)


@pytest.mark.parametrize(
    ("name", "value"),
    [("cache_prompt", "false"), ("cache_prompt", 0), ("prompt_cache_key", 7), ("user", ["u"])],
)
def test_wrong_type_at_the_root_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(BadField, match=f"{name}: wants a") as caught:
        chat_read(**{name: value})
    assert (caught.value.param, caught.value.status) == (name, 400)
