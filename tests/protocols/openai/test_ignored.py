"""Fields that change nothing on this route, and the one that only changes streams."""

from typing import Any

import pytest

from mlxcel.core.errors import BadField
from tests.protocols.openai.reading import chat_read

IGNORED = (
    *("functions", "function_call", "service_tier", "store", "metadata", "modalities"),
    *("prediction", "verbosity", "web_search_options", "id_slot", "grammar", "json_schema"),
    *("samplers", "mirostat", "mirostat_tau", "mirostat_eta", "dynatemp_range", "reasoning_format"),
    *("add_generation_prompt", "continue_final_message", "something_new"),
)


@pytest.mark.parametrize("name", IGNORED)
def test_ignored_and_unknown_fields_are_accepted(name: str) -> None:
    assert chat_read(**{name: {"any": ["thing"]}}) == chat_read()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("parallel_tool_calls", False, id="parallel-calls"),
        pytest.param("reasoning_control", False, id="reasoning-control"),
    ],
)
def test_an_inert_field_has_a_type_and_changes_nothing(name: str, value: Any) -> None:
    assert chat_read(**{name: value}) == chat_read()
    with pytest.raises(BadField, match=f"{name}: wants a .*, got array") as caught:
        chat_read(**{name: []})
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("sent", "is_controllable"),
    [
        pytest.param({"stream": True, "reasoning_control": True}, True, id="a-stream"),
        pytest.param({"stream": True, "reasoning_control": False}, False, id="asked-not-to"),
        pytest.param({"stream": True}, False, id="absent"),
        pytest.param({"reasoning_control": True}, False, id="no-stream"),
    ],
)
def test_only_a_stream_can_be_controlled(sent: dict[str, Any], is_controllable: bool) -> None:
    assert chat_read(**sent).request.is_controllable is is_controllable
