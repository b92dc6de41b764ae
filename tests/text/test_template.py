import pytest

from mlxcel.core.errors import BadRequest, StartupError
from mlxcel.core.request import Message, Tool, ToolCall
from mlxcel.text.bytes import BYTE_TEMPLATE
from mlxcel.text.template import ChatTemplate, TemplateRefused

SYSTEM_FIRST = """\
{%- for m in messages %}
{%- if m.role == 'system' and not loop.first %}
{{- raise_exception('System message must be at the beginning.') }}
{%- endif %}
{{- m.role }}: {{ m.content }};
{%- endfor %}"""

USER = Message(role="user", text="hi")


def compiled(source: str) -> ChatTemplate:
    return ChatTemplate(source, origin="test", special_tokens={"bos_token": "<s>"})


def rendered(source: str, *messages: Message, **kwargs: object) -> str:
    return compiled(source).render(messages or (USER,), kwargs)


def test_byte_template_writes_one_turn_per_message() -> None:
    turns = (Message(role="system", text="s"), USER, Message(role="assistant", text="a\n"), USER)
    assert rendered(BYTE_TEMPLATE, *turns) == (
        "<|system|>s<|end|><|user|>hi<|end|><|assistant|>a\n<|end|><|user|>hi<|end|><|assistant|>"
    )


def test_developer_is_system_for_a_template_that_does_not_know_it() -> None:
    developer = Message(role="developer", text="Be short.")
    assert rendered(SYSTEM_FIRST, developer, USER) == "system: Be short.;user: hi;"


def test_developer_stays_for_a_template_that_knows_it() -> None:
    source = "{% for m in messages %}{{ m.role }} {% endfor %}{# system or developer #}"
    assert rendered(source, Message(role="developer")) == "developer "


def test_refusal_carries_the_words_of_the_template() -> None:
    with pytest.raises(TemplateRefused, match="System message must be at the beginning") as caught:
        rendered(SYSTEM_FIRST, USER, Message(role="system", text="late"), USER)
    assert (caught.value.status, caught.value.param) == (400, "messages")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("{{ messages[0].content + 1 }}", id="TypeError"),
        pytest.param("{{ messages[7].content.x }}", id="undefined"),
        pytest.param("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", id="endless-recursion"),
        pytest.param("{% for i in range(999999999) %}{% endfor %}", id="endless-loop"),
        pytest.param("{{ 1 / 0 }}", id="ZeroDivisionError"),
        pytest.param("{{ 'abc'.index('z') }}", id="ValueError"),
        pytest.param("{{ messages[0].content.__class__.__mro__ }}", id="sandbox"),
        pytest.param("{{ messages.append(1) }}", id="immutable"),
        pytest.param("{{ ''.join(1) }}", id="bad-call"),
        pytest.param("{{ messages | tojson(indent='x'.y.z) }}", id="undefined-argument"),
    ],
)
def test_whatever_a_template_does_is_a_bad_request(source: str) -> None:
    with pytest.raises(BadRequest):
        rendered(source)


def test_syntax_error_is_found_at_the_start_and_names_origin_and_line() -> None:
    with pytest.raises(StartupError, match=r"chat template of test .* line 2"):
        compiled("\n{% if %}")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        pytest.param("{{ {'k': '<é&>'} | tojson }}", '{"k": "<é&>"}', id="tojson-without-escapes"),
        pytest.param("{{ {'k': 1} | tojson(indent=2) }}", '{\n  "k": 1\n}', id="tojson-indent"),
        pytest.param("{{ strftime_now('%%') }}", "%", id="strftime_now"),
        pytest.param(
            "{% for i in range(5) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "01",
            id="loopcontrols",
        ),
        pytest.param(
            "{% generation %}{{ messages[0].content }}{% endgeneration %}", "hi", id="generation"
        ),
        pytest.param("  {% if true %}\nx\n  {% endif %}\ny", "x\ny", id="trim-and-lstrip"),
        pytest.param("{{ bos_token }}{{ messages[0].content }}", "<s>hi", id="special-tokens"),
        pytest.param("{{ unk_token }}", "", id="absent-special-token"),
        pytest.param("{{ tools is none and documents is none }}", "True", id="no-tools"),
        pytest.param("{{ enable_thinking }}", "False", id="kwargs"),
    ],
)
def test_environment_is_that_of_transformers(source: str, text: str) -> None:
    assert rendered(source, enable_thinking=False) == text


def test_kwargs_cannot_replace_the_messages() -> None:
    assert rendered("{{ messages | length }}", messages=[]) == "1"


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        pytest.param('{"city": "Oslo"}', "Oslo", id="object"),
        pytest.param("[1]", "[1]", id="other-json"),
        pytest.param('{"city', '{"city', id="broken"),
    ],
)
def test_arguments_are_an_object_where_they_can_be(arguments: str, seen: str) -> None:
    call = ToolCall(id="c1", name="weather", arguments=arguments)
    source = (
        "{% set f = messages[0].tool_calls[0].function %}{{ f.name }} "
        "{{ f.arguments.city if f.arguments is mapping else f.arguments }}"
    )
    assert rendered(source, Message(role="assistant", calls=(call,))) == f"weather {seen}"


def test_optional_keys_are_absent_when_not_given() -> None:
    source = "{{ messages[0] | list | join(' ') }}"
    assert rendered(source, USER) == "role content"
    full = Message(role="tool", text="7", name="f", reasoning="r", call_id="c1")
    assert rendered(source, full) == "role content name reasoning_content reasoning tool_call_id"


WEATHER = Tool(name="weather", parameters={}, sent={"type": "function", "function": {"z": 1}})


def test_tools_are_the_entries_as_they_were_sent() -> None:
    source = "{{ tools | tojson }}"
    assert compiled(source).render((USER,), {}, (WEATHER,)) == (
        '[{"type": "function", "function": {"z": 1}}]'
    )
    assert compiled(source).render((USER,), {}) == "null"


def test_kwargs_cannot_replace_the_tools() -> None:
    assert compiled("{{ tools | length }}").render((USER,), {"tools": []}, (WEATHER,)) == "1"


@pytest.mark.parametrize("text", ["[" * 1500, '{"a":' * 5000], ids=["arrays", "objects"])
def test_arguments_nested_without_end_are_shown_as_text(text: str) -> None:
    call = ToolCall(id="c", name="f", arguments=text)
    turn = Message(role="assistant", calls=(call,))
    source = "{{ messages[0].tool_calls[0].function.arguments }}"
    template = ChatTemplate(source, origin="test", special_tokens={})
    assert template.render([turn], {}) == text
