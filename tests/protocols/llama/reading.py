"""Reading a native body in a test: `completion_read(temperature=0)`."""

from typing import Any

from mlxcel.core.settings import Settings
from mlxcel.protocols.base import ReadRules
from mlxcel.protocols.llama import completion, infill
from mlxcel.protocols.llama.asked import CompletionRead
from tests.protocols.samples import RULES, SETTINGS

DRAWN = 123456


def completion_read(
    settings: Settings = SETTINGS, rules: ReadRules = RULES, **fields: Any
) -> CompletionRead:
    return completion.read(
        {"prompt": "2+2="} | fields,
        request_id="cmpl-0",
        settings=settings,
        received_s=5.0,
        rules=rules,
        draw=lambda: DRAWN,
    )


def infill_read(
    settings: Settings = SETTINGS, rules: ReadRules = RULES, **fields: Any
) -> CompletionRead:
    return infill.read(
        {"input_prefix": "def f(", "input_suffix": "): pass"} | fields,
        request_id="infill-0",
        settings=settings,
        received_s=5.0,
        rules=rules,
        draw=lambda: DRAWN,
    )
