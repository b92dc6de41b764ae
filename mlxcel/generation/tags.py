"""What the prompt cache is told of a request: in whose name, under which template and tools, and
which places of the prompt are worth keeping (engine contract, cache 3 and 7)."""

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from mlxcel.core.cache import ANONYMOUS, NO_DIGEST, CacheTag, CacheUse
from mlxcel.core.request import ChatPrompt, GenerationRequest, Tool, ToolMode
from mlxcel.generation.chat_model import ChatModel
from mlxcel.text.prefill import Prompt

NO_CHOICE = "__absent__"


def encoded(
    model: ChatModel, prompt: Prompt, request: GenerationRequest, kwargs: Mapping[str, Any]
) -> tuple[list[int], CacheTag | None]:
    """The ids of a prompt, and their tag; None where the cache has no part in it."""
    if not is_cached(request, model):
        return model.text.encode(prompt.text), None
    ids, (boundary, system) = model.text.encode_marked(prompt.text, prompt.history, prompt.system)
    if system and model.text.encode(prompt.text[: prompt.system]) != ids[:system]:
        # A token reaches over the end of the system messages.
        system = 0
    return ids, CacheTag(
        session=session_of(request.cache),
        template=template_digest(model, kwargs, is_begun=bool(prompt.begun)),
        tools=tools_digest(request.chat.tools),
        tool_choice=choice_tag(request.chat),
        # The last token is always read: what it is followed by is what was asked for.
        boundary=min(boundary, max(0, len(ids) - 1)),
        system=system,
        is_conversation=request.cache.conversation is not None,
    )


def plain_tag(model: ChatModel, request: GenerationRequest) -> CacheTag | None:
    """Of a prompt that no template has made."""
    if not is_cached(request, model):
        return None
    return CacheTag(session=session_of(request.cache), template=_digest(b"plain"))


def is_cached(request: GenerationRequest, model: ChatModel) -> bool:
    """What has to score its prompt reads it cold."""
    return request.cache.is_on and model.options.caches and not request.scores_prompt


def session_of(use: CacheUse) -> str:
    """A conversation and a client may go by the same name: they share nothing for it."""
    if use.conversation is not None:
        return f"conv:{use.conversation}"
    return use.session if use.session == ANONYMOUS else f"key:{use.session}"


def template_digest(model: ChatModel, kwargs: Mapping[str, Any], *, is_begun: bool) -> bytes:
    source = "" if model.template is None else model.template.source
    return _digest(b"template", b"begun" if is_begun else b"asked", source.encode(), _json(kwargs))


def tools_digest(tools: Sequence[Tool]) -> bytes:
    """Over type, name, description and parameters, in the order of the request."""
    if not tools:
        return NO_DIGEST
    return _digest(b"tools", *(_json(_shown(tool)) for tool in tools))


def choice_tag(prompt: ChatPrompt) -> str:
    """A choice left out is `auto`, which it means."""
    if not prompt.tools:
        return NO_CHOICE
    choice = prompt.tool_choice
    named = choice.mode is ToolMode.NAMED
    return f"specific:{choice.name}" if named else f"mode:{choice.mode}"


def _shown(tool: Tool) -> list[Any]:
    function = tool.sent.get("function")
    described = function.get("description") if isinstance(function, Mapping) else None
    return [tool.sent.get("type"), tool.name, described, dict(tool.parameters)]


def _json(value: Any) -> bytes:
    """The same for mappings that differ in the order of their keys. What a configuration may hold
    and JSON does not, such as a date, is written as text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()


def _digest(*parts: bytes) -> bytes:
    """Each part with its length, so that no two lists of parts are written alike."""
    made = hashlib.sha256()
    for part in parts:
        made.update(struct.pack("<Q", len(part)) + part)
    return made.digest()
