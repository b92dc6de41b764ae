"""Prompts that wait, without an engine."""

from mlxcel.core.request import Lane
from mlxcel.engine.intake import prompt_of
from mlxcel.engine.prompt import Prompt
from mlxcel.engine.request import request_from
from tests.engine.driver import submit


def prompt(
    name: str,
    length: int = 10,
    *,
    lane: Lane = Lane.NORMAL,
    choices: int = 1,
    lora: tuple[float, ...] = (),
) -> Prompt:
    message = submit(name, [1] * length, lane=lane, choices=choices)
    request = request_from(message, window=0, lora=lora, now_s=0.0)
    return prompt_of(request, [])
