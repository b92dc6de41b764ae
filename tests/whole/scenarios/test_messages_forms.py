"""Answers in a form, through Anthropic's official client."""

import json
from typing import Any, Literal

import anthropic
import pytest
from pydantic import BaseModel, ConfigDict

from tests.whole.program import Program
from tests.whole.scenarios.asking import settle
from tests.whole.scenarios.claude import Reach, body, reach, refused, streaming, text_of

__all__ = ["reach"]
pytestmark = [pytest.mark.slow, pytest.mark.asyncio]


class Weather(BaseModel):
    """Nothing in it that a random model could go on with for ever."""

    model_config = ConfigDict(strict=True, extra="forbid")
    sky: Literal["clear", "grey"]
    rains: bool


async def test_parse_gives_the_model_back(reach: Reach, tiny_server: Program) -> None:
    ai = reach(tiny_server)
    answer = await settle(ai.messages.parse(**body("Oslo?"), output_format=Weather))
    assert isinstance(answer.parsed_output, Weather)
    assert answer.stop_reason == "end_turn"


async def test_a_schema_binds_a_stream(reach: Reach, tiny_server: Program) -> None:
    form = {"type": "json_schema", "schema": Weather.model_json_schema()}
    config = {"format": form}
    async with streaming(reach(tiny_server), "Oslo?", output_config=config) as stream:
        answer: Any = await settle(stream.get_final_message())
    assert Weather.model_validate(json.loads(text_of(answer)))


async def test_a_schema_that_cannot_be_kept_is_named(reach: Reach, tiny_server: Program) -> None:
    form = {"type": "json_schema", "schema": {"type": "string", "pattern": "(?=a)b"}}
    asked = body("hi", output_config={"format": form})
    error = await refused(anthropic.BadRequestError, reach(tiny_server).messages.create, **asked)
    assert "output_config.format" in str(error)
