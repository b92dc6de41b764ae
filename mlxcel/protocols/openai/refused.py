"""Fields that ask for work this server does not do: refused, unless at their neutral value.

Whoever sends one of them gets a 400 that names the field and what works, never an answer that
silently lacks what was asked for. A field leaves this table when its feature arrives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlxcel.protocols.fields import Reader, shown

NEUTRAL_TOOL_CHOICES = ("auto", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`kind` is the reader for the type; `is_neutral` says which values ask for nothing."""

    names: tuple[str, ...]
    kind: str
    is_neutral: Callable[[Any], bool]
    works: str


def _integer(*names: str, neutral: tuple[int, ...], works: str) -> Refusal:
    return Refusal(names=names, kind="integer", is_neutral=neutral.__contains__, works=works)


def _switch(name: str) -> Refusal:
    return Refusal(names=(name,), kind="boolean", is_neutral=_is_off, works="false")


def _is_off(value: bool) -> bool:
    return not value


def _is_text(value: Any) -> bool:
    return value.get("type") in (None, "text")


REFUSALS = (
    _integer("n", neutral=(1,), works="1"),
    _switch("logprobs"),
    _integer("top_logprobs", neutral=(0,), works="0"),
    _switch("echo"),
    _switch("reasoning_control"),
    Refusal(
        names=("response_format",), kind="mapping", is_neutral=_is_text, works='{"type": "text"}'
    ),
    _integer("thinking_budget_tokens", "reasoning_budget_tokens", neutral=(-1,), works="-1"),
    _integer("thinking_token_budget", neutral=(-1,), works="-1"),
    _integer("thinking_budget", neutral=(-1,), works="-1"),
    _integer("max_pattern_size", neutral=(0,), works="0"),
)


def check_refused(fields: Reader) -> None:
    """Raises BadField for the first field of the table that asks for something."""
    for refusal in REFUSALS:
        value = getattr(fields, refusal.kind)(*refusal.names)
        if value is not None and not refusal.is_neutral(value):
            key, _ = fields.pick(*refusal.names)
            raise fields.refuse(key, _rule(value, refusal.works))
    _check_tools(fields)


def _check_tools(fields: Reader) -> None:
    """Tools beside `tool_choice: none` ask for nothing; the choice alone asks for nothing too."""
    tools = fields.items("tools")
    _, choice = fields.pick("tool_choice")
    if choice is not None and choice not in NEUTRAL_TOOL_CHOICES:
        raise fields.refuse("tool_choice", _rule(choice, '"auto" or "none"'))
    if tools and choice != "none":
        raise fields.refuse("tools", _rule(tools, 'an empty array, or tool_choice "none"'))


def _rule(value: object, works: str) -> str:
    return f"{shown(value)} is not supported by this server; what works is {works}"
