"""What templates can do, against small ones in the manner of well-known families."""

from dataclasses import asdict

import pytest

from mlxcel.text.abilities import abilities_of
from mlxcel.text.bytes import BYTE_TEMPLATE
from mlxcel.text.template import ChatTemplate

PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
STRICT = """\
{%- if messages[0].role == 'system' -%}
{{- raise_exception('System role not supported') }}
{%- endif -%}
{%- for m in messages -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('Conversation roles must alternate user/assistant/...') -}}
{%- endif -%}
<start_of_turn>{{ m.role }}
{{ m.content | trim }}<end_of_turn>
{%- endfor -%}"""
"""Gemma 2."""
HERMES = """\
{%- if tools %}<tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>{% endif -%}
{%- for m in messages -%}
{{- '<|im_start|>' + m.role }}
{%- if m.role == 'assistant' and m.reasoning_content is string and loop.last -%}
<think>{{ m.reasoning_content }}</think>
{%- endif -%}
{{- m.content }}
{%- for call in m.tool_calls or [] -%}
{%- set sent = call.function.arguments -%}
<tool_call>{"name": "{{ call.function.name }}", "arguments":
{%- if sent is string %}{{ sent }}{% else %}{{ sent | tojson }}{% endif %}}</tool_call>
{%- endfor -%}
{%- endfor -%}"""
"""Qwen 3: thoughts of earlier turns are left out."""
LLAMA3 = """\
{%- if tools is not none %}{% for t in tools %}{{ t | tojson(indent=4) }}{% endfor %}{% endif -%}
{%- for m in messages -%}
{%- if 'tool_calls' in m -%}
{%- if m.tool_calls | length != 1 -%}
{{- raise_exception('This model only supports single tool-calls at once!') }}
{%- endif -%}
{%- set call = m.tool_calls[0].function -%}
{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}
{%- else -%}
{{ m.role }}{{ m.content }}
{%- endif -%}
{%- endfor -%}"""
KEEPING = """\
{%- set effort = reasoning_effort | default('medium') -%}
Reasoning: {{ effort }}
{%- for m in messages -%}
{{ m.role }}
{%- if m.reasoning_content and (preserve_thinking or loop.last) -%}
<think>{{ m.reasoning_content }}</think>
{%- endif -%}
{%- if m.content is string -%}{{ m.content }}
{%- else -%}{% for part in m.content %}{{ part.text }}{% endfor %}{%- endif -%}
{%- endfor -%}"""
PARTS_ONLY = """\
{%- for m in messages -%}{% for part in m.content %}{{ part['text'] }}{% endfor %}{%- endfor -%}"""
PYTHONIC = """\
{%- for m in messages -%}{{ m.content }}
{%- for call in m.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments }})
{%- endfor -%}{%- endfor -%}"""
"""Prints an object as Python writes it."""


@pytest.mark.parametrize(
    ("source", "can"),
    [
        (PLAIN, {"string_content", "system_role"}),
        (STRICT, {"string_content"}),
        (
            HERMES,
            {
                "string_content",
                "system_role",
                "tools",
                "tool_calls",
                "parallel_tool_calls",
                "object_arguments",
            },
        ),
        (LLAMA3, {"string_content", "system_role", "tools", "tool_calls", "object_arguments"}),
        (
            KEEPING,
            {
                "string_content",
                "typed_content",
                "system_role",
                "preserve_reasoning",
                "reasoning_effort",
            },
        ),
        (PARTS_ONLY, {"typed_content"}),
        (PYTHONIC, {"string_content", "system_role", "tool_calls", "parallel_tool_calls"}),
        (
            BYTE_TEMPLATE,
            {
                "string_content",
                "system_role",
                "tool_calls",
                "parallel_tool_calls",
                "object_arguments",
            },
        ),
        ("{{ raise_exception('never') }}", set()),
    ],
    ids=[
        "plain",
        "strict",
        "hermes",
        "llama3",
        "keeping",
        "parts",
        "pythonic",
        "bytes",
        "refuses-all",
    ],
)
def test_what_a_template_can_do(source: str, can: set[str]) -> None:
    template = ChatTemplate(source, origin="test", special_tokens={})
    found = asdict(abilities_of(template))
    assert {name for name, holds in found.items() if holds} == can


def test_without_a_template_nothing_can_be_done() -> None:
    assert not any(asdict(abilities_of(None)).values())
