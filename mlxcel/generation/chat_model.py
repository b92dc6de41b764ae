"""The served model as the front knows it: tokens, template, and how it marks thinking and calls.

Made once a load; no weights, and nothing of the worker.
"""

import json
import logging
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from mlxcel.core.request import ChatPrompt, GenerationRequest, Tool, ToolMode
from mlxcel.generation.options import ChatOptions
from mlxcel.generation.schema_checks import SchemaRefused
from mlxcel.generation.structured import enforceable
from mlxcel.text.template import ChatTemplate
from mlxcel.text.thinking import Marks, find_marks, spelt_marks
from mlxcel.text.tokenizer import TextModel
from mlxcel.text.tools.choose import find_format
from mlxcel.text.tools.format import ToolFormat
from mlxcel.text.tools.formats import JSON_TOOLS

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModel:
    text: TextModel
    template: ChatTemplate | None
    options: ChatOptions
    marks: Marks | None = None
    """None: it does not think, or in a way that is not known here."""
    tool_format: ToolFormat = JSON_TOOLS
    """That of Hermes for a model that shows no other, and for one that has to be told of tools in
    words (`describe`): it is told that form."""
    cache_dir: Path | None = None
    """Where what costs time to find out is kept; None: nowhere."""

    @classmethod
    def of(
        cls,
        text: TextModel,
        template: ChatTemplate | None,
        options: ChatOptions,
        cache_dir: Path | None = None,
    ) -> Self:
        """Finds out how the model marks what is no plain answer."""
        return cls(
            text=text,
            template=template,
            options=options,
            marks=_marks(template, text),
            tool_format=_tool_format(template, text),
            cache_dir=cache_dir,
        )

    def call_grammar(self, prompt: ChatPrompt) -> str | None:
        """What an answer under a forced choice has to be; None: words alone ask for it."""
        form = self.tool_format
        if not prompt.tool_choice.is_forced:
            return None
        try:
            tools = [_kept_to_the_letter(tool) for tool in _choosable(prompt)]
        except SchemaRefused as why:
            log.info("a forced tool call is left to the instruction: %s", why)
            return None
        return form.forced_grammar(tools, prompt.tool_choice, self.text.grammar_words(form.markers))

    def reads_calls(self, prompt: ChatPrompt) -> bool:
        """Whether calls are looked for in the answers to a prompt."""
        return self.options.parses and _offers_tools(prompt)

    def visible(self, request: GenerationRequest) -> dict[int, str]:
        """The special tokens that are text in the answers to a request: ids and words."""
        prompt = request.chat
        found = [self.text.vocabulary.id_of(word) for word in request.preserved]
        if self.marks is not None:
            found += [*self.marks.open_ids, *self.marks.close_ids]
        if _offers_tools(prompt):
            found += map(self.text.vocabulary.id_of, self.tool_format.markers)
        return self.text.vocabulary.specials_among(token for token in found if token is not None)


def _marks(template: ChatTemplate | None, text: TextModel) -> Marks | None:
    return find_marks(text) or (None if template is None else spelt_marks(text, template.source))


def _tool_format(template: ChatTemplate | None, text: TextModel) -> ToolFormat:
    if template is None or not template.knows_tools:
        return JSON_TOOLS
    return find_format(template.source, text.vocabulary) or JSON_TOOLS


def _choosable(prompt: ChatPrompt) -> list[Tool]:
    choice = prompt.tool_choice
    is_named = choice.mode is ToolMode.NAMED
    return [tool for tool in prompt.tools if not is_named or tool.name == choice.name]


def _kept_to_the_letter(tool: Tool) -> Tool:
    return replace(tool, parameters=_enforceable(json.dumps(dict(tool.parameters))))


@lru_cache(maxsize=256)
def _enforceable(parameters: str) -> dict[str, Any]:
    """Agents send the same tools again and again; each costs a millisecond or two."""
    return enforceable(json.loads(parameters))


def _offers_tools(prompt: ChatPrompt) -> bool:
    return bool(prompt.tools) and prompt.tool_choice.mode is not ToolMode.NONE
