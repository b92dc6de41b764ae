"""Chat templates: Jinja programs that come with a checkpoint and are not to be trusted.

The environment is that of transformers, whose users write these templates. Whatever goes
wrong while one runs is an answer to the client's messages, never a fault of the server.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mlxcel.core.errors import BadRequest, StartupError
from mlxcel.core.request import Message, Tool
from mlxcel.text.messages import as_template_message

# What Python code inside a template raises on input its author did not think of. RecursionError
# is a RuntimeError.
_REFUSALS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)

# transformers always passes these two. Templates ask `tools is not none`, which holds for the
# undefined.
_ABSENT = {"tools": None, "documents": None}


class TemplateRefused(BadRequest):
    """The chat template does not take these messages; says why in the template's own words."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the model's chat template refuses these messages: {reason}", param="messages"
        )


class ChatTemplate:
    def __init__(self, source: str, *, origin: str, special_tokens: Mapping[str, str]) -> None:
        """`origin` names the source in messages. Raises StartupError when it does not compile."""
        try:
            self._template = _environment().from_string(source)
        except TemplateSyntaxError as error:
            raise StartupError(
                f"the chat template of {origin} does not compile: line {error.lineno}: {error}"
            ) from error
        self.source = source
        self._special_tokens = special_tokens
        self._knows_developer = "developer" in source
        self.knows_tools = "tools" in source
        """It has a place for the tools of a request."""
        self.knows_calls = "tool_calls" in source
        """It shows the calls of earlier turns."""

    def render(
        self,
        messages: Sequence[Message],
        kwargs: Mapping[str, Any],
        tools: Sequence[Tool] = (),
        *,
        asks: bool = True,
    ) -> str:
        """Up to where the answer begins; unless it `asks` for one, up to the end of the last
        message. Raises TemplateRefused."""
        own: dict[str, Any] = {"add_generation_prompt": asks}
        if tools:
            own["tools"] = [tool.sent for tool in tools]
        developer = self._knows_developer
        try:
            own["messages"] = [as_template_message(m, knows_developer=developer) for m in messages]
        except _REFUSALS as error:
            raise TemplateRefused(str(error) or type(error).__name__) from error
        return self.render_variables({**kwargs, **own})

    def render_variables(self, variables: Mapping[str, Any]) -> str:
        """With the variables as they are, `messages` among them. Raises TemplateRefused."""
        try:
            return self._template.render({**_ABSENT, **self._special_tokens, **variables})
        except _REFUSALS as error:
            raise TemplateRefused(str(error) or type(error).__name__) from error


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here it is only a bracket."""

    tags = {"generation"}  # noqa: RUF012  the name jinja2 reads

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _Generation],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter writes <, > and & as escapes, which a model has never seen in JSON.
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
