"""What a chat template can do, found by rendering it: words are hidden in messages, and a template
that shows them knows what to do with such messages.

A template that refuses cannot do it. What is looked for is how it shows things, not how it reads.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mlxcel.core.ports import TemplateAbilities
from mlxcel.text.template import ChatTemplate, TemplateRefused

Turn = Mapping[str, Any]

WORD = "Xq7word"
OTHER = "Xq8word"
KEY = "xq9key"
ASKED: Turn = {"role": "user", "content": "Hello"}
SAID: Turn = {"role": "assistant", "content": "Hello"}
TOOL = {
    "type": "function",
    "function": {
        "name": WORD,
        "description": "Looks something up.",
        "parameters": {
            "type": "object",
            "properties": {KEY: {"type": "string", "description": "what"}},
            "required": [KEY],
        },
    },
}
CALL_IDS = ("call00001", "call00002")
"""Of nine letters and digits: Mistral's templates take no others."""


def abilities_of(template: ChatTemplate | None) -> TemplateAbilities:
    """Renders about ten short conversations."""
    if template is None:
        return TemplateAbilities()
    probe = _Probe(template)
    string, objects = probe.call(json.dumps({KEY: OTHER})), probe.call({KEY: OTHER})
    return TemplateAbilities(
        string_content=WORD in probe.show([_user(WORD)]),
        typed_content=probe.shows_parts(),
        tools=WORD in probe.show([ASKED], tools=[TOOL]),
        tool_calls=WORD in string or WORD in objects,
        parallel_tool_calls=probe.shows_two_calls(),
        system_role=WORD in probe.show([{"role": "system", "content": WORD}, ASKED]),
        preserve_reasoning=probe.keeps_thoughts(),
        reasoning_effort=probe.knows_effort(),
        object_arguments=OTHER in objects and not _is_python(objects),
    )


class _Probe:
    def __init__(self, template: ChatTemplate) -> None:
        self._template = template

    def show(self, messages: Sequence[Turn], **variables: Any) -> str:
        """Empty where the template refuses."""
        told = {"messages": list(messages), "add_generation_prompt": True, **variables}
        try:
            return self._template.render_variables(told)
        except TemplateRefused:
            return ""

    def shows_parts(self) -> bool:
        """One that prints the list itself shows the word, and the type beside it."""
        shown = self.show([_user([{"type": "text", "text": WORD}])])
        return WORD in shown and "'type'" not in shown and '"type"' not in shown

    def call(self, arguments: Any) -> str:
        called = {"role": "assistant", "content": "", "tool_calls": [_call(0, WORD, arguments)]}
        return self.show([ASKED, called, _result(0), SAID, ASKED])

    def shows_two_calls(self) -> bool:
        """With arguments of either kind."""
        return self._shows_two("{}") or self._shows_two({})

    def _shows_two(self, arguments: Any) -> bool:
        calls = [_call(0, WORD, arguments), _call(1, OTHER, arguments)]
        called = {"role": "assistant", "content": "", "tool_calls": calls}
        shown = self.show([ASKED, called, _result(0), _result(1), SAID, ASKED])
        return WORD in shown and OTHER in shown

    def keeps_thoughts(self) -> bool:
        """Those of a turn that is over, where they are asked for."""
        thought = {"role": "assistant", "content": "Hello"}
        thought |= {"reasoning_content": WORD, "reasoning": WORD}
        asked = {"preserve_reasoning": True, "preserve_thinking": True}
        return WORD in self.show([ASKED, thought, ASKED], **asked)

    def knows_effort(self) -> bool:
        few, much = (self.show([ASKED], reasoning_effort=effort) for effort in ("low", "high"))
        return few != much


def _user(content: object) -> Turn:
    return {"role": "user", "content": content}


def _call(place: int, name: str, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": CALL_IDS[place], "type": "function", "function": function}


def _result(place: int) -> Turn:
    call = CALL_IDS[place]
    return {"role": "tool", "content": "found", "tool_call_id": call, "name": "lookup"}


def _is_python(shown: str) -> bool:
    """The object was printed as Python writes it."""
    return f"'{KEY}': " in shown
