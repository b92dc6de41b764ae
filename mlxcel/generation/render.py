"""From a conversation to the text the model reads: who decides what the template is told."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlxcel.core.errors import BadRequest
from mlxcel.core.request import ChatPrompt, GenerationRequest, Message, Tool, ToolMode
from mlxcel.generation.chat_model import ChatModel
from mlxcel.generation.options import ChatOptions
from mlxcel.text.old_thoughts import without_old_thoughts
from mlxcel.text.prefill import NO_PLACES, Places, Prompt, render_prompt
from mlxcel.text.template import ChatTemplate
from mlxcel.text.tools.describe import with_calls, with_tools
from mlxcel.text.tools.instruct import with_instruction

KEEPS_THOUGHTS = "preserve_thinking"


def template_kwargs(request: GenerationRequest, model: ChatModel) -> dict[str, Any]:
    """Strongest first: the request, the options made for one key each, the kwargs of the
    settings, into which the start puts what is known of the model."""
    live = request.settings.template_kwargs
    kwargs = {**live, **_of_options(model.options), **request.chat.kwargs}
    if model.options.caches and not isinstance(kwargs.get(KEEPS_THOUGHTS), bool):
        # A turn that reads as it was written is found again.
        kwargs[KEEPS_THOUGHTS] = True
    return kwargs


def _of_options(options: ChatOptions) -> dict[str, Any]:
    asked: dict[str, Any] = {}
    if options.thinks is not None:
        asked["enable_thinking"] = options.thinks
    if options.effort is not None:
        asked["reasoning_effort"] = options.effort
    if options.preserves_reasoning:
        asked["preserve_reasoning"] = True
    return asked


def render(
    request: GenerationRequest,
    model: ChatModel,
    kwargs: Mapping[str, Any],
    places: Places = NO_PLACES,
) -> Prompt:
    """Raises BadRequest, of which TemplateRefused is one."""
    template, messages, tools = _shown(request, model, kwargs)
    return render_prompt(
        template, messages, kwargs, tools=tools, prefill=model.options.prefills, places=places
    )


def render_said(request: GenerationRequest, model: ChatModel, kwargs: Mapping[str, Any]) -> str:
    """The messages, without what asks for an answer. Raises BadRequest."""
    template, messages, tools = _shown(request, model, kwargs)
    return template.render(messages, kwargs, tools, asks=False)


def _shown(
    request: GenerationRequest, model: ChatModel, kwargs: Mapping[str, Any]
) -> tuple[ChatTemplate, Sequence[Message], tuple[Tool, ...]]:
    """What the template is given."""
    if model.template is None:
        raise BadRequest(
            "this model has no chat template; set generation.chat_template.file or .text",
            param="messages",
        )
    tools = _offered(request.chat)
    messages = _messages(request.chat, model, kwargs)
    if not model.template.knows_tools:
        if not model.template.knows_calls:
            messages = with_calls(messages)
        if tools:
            messages = with_tools(messages, tools)
    return model.template, messages, tools


def _messages(prompt: ChatPrompt, model: ChatModel, kwargs: Mapping[str, Any]) -> Sequence[Message]:
    messages: Sequence[Message] = prompt.messages
    keeps_thoughts = kwargs.get(KEEPS_THOUGHTS) is True
    if model.marks is not None and not keeps_thoughts:
        messages = without_old_thoughts(messages, model.marks)
    if prompt.tool_choice.is_forced:
        messages = with_instruction(messages, prompt.tool_choice)
    return messages


def _offered(prompt: ChatPrompt) -> tuple[Tool, ...]:
    """The tools the model is shown."""
    match prompt.tool_choice.mode:
        case ToolMode.NONE:
            return ()
        case ToolMode.NAMED:
            return tuple(tool for tool in prompt.tools if tool.name == prompt.tool_choice.name)
        case _:
            return prompt.tools
