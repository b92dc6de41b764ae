"""What wakes a lazy grammar, as the worker looks for it: tokens and expressions (RE2).

Expressions come from clients, and the worker looks for them after every token of a row: their size
is bounded here, before a request is queued.
"""

from collections.abc import Collection
from functools import lru_cache

import re2

from mlxcel.core.errors import BadField
from mlxcel.core.output import Trigger, TriggerKind
from mlxcel.core.steering import Trigger as Looked
from mlxcel.text.tokenizer import TextModel

MAX_TRIGGERS = 64
MAX_BYTES = 4096
"""Of a word or an expression."""
MAX_PROGRAM = 500
"""Steps of all expressions of a request together: what a byte of the answer may cost at worst."""
FIELD = "grammar_triggers"


def check_triggers(triggers: tuple[Trigger, ...]) -> None:
    """Raises BadField for what cannot be looked for."""
    if len(triggers) > MAX_TRIGGERS:
        raise BadField(FIELD, f"has {len(triggers)} entries; at most {MAX_TRIGGERS}")
    left = MAX_PROGRAM
    for place, trigger in enumerate(triggers):
        if trigger.kind is TriggerKind.TOKEN:
            if trigger.token is None:
                raise BadField(f"{FIELD}.{place}.token", "is missing; a trigger of type 0 needs it")
            continue
        name = f"{FIELD}.{place}.value"
        left -= _size(trigger, name)
        if left < 0:
            raise BadField(name, "is too large, or all expressions together; use shorter ones")


def looked_for(
    triggers: tuple[Trigger, ...], text: TextModel, preserved: Collection[str]
) -> tuple[Looked, ...]:
    """Raises BadField for a word that is one token, but not preserved: it would not be shown."""
    return tuple(_looked(trigger, i, text, preserved) for i, trigger in enumerate(triggers))


def _looked(trigger: Trigger, place: int, text: TextModel, preserved: Collection[str]) -> Looked:
    tokens = () if trigger.token is None else (trigger.token,)
    match trigger.kind:
        case TriggerKind.TOKEN:
            return Looked(tokens=tokens)
        case TriggerKind.WORD:
            ids = text.encode(trigger.value)
            if len(ids) == 1:
                if trigger.value not in preserved:
                    raise BadField(
                        f"{FIELD}.{place}.value",
                        f"is one token, so preserved_tokens must have {trigger.value!r} too",
                    )
                tokens = (*tokens, *ids)
            # The same letters may also come in other tokens.
            return Looked(tokens=tokens, pattern=_pattern(trigger))
        case _:
            is_full = trigger.kind is TriggerKind.PATTERN_FULL
            return Looked(pattern=trigger.value, is_full=is_full)


def _pattern(trigger: Trigger) -> str:
    if trigger.kind is not TriggerKind.WORD:
        return trigger.value
    escaped: str = re2.escape(trigger.value)
    return escaped


def _size(trigger: Trigger, name: str) -> int:
    """Raises BadField."""
    if not trigger.value:
        raise BadField(name, "is empty; write what wakes the grammar")
    size = len(trigger.value.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise BadField(name, f"is {size} bytes long; at most {MAX_BYTES}")
    try:
        return _steps(_pattern(trigger))
    except UnicodeEncodeError as error:
        raise BadField(name, "has half of a surrogate pair") from error
    except re2.error as error:
        said = error.args[0].decode("utf-8", "replace")
        raise BadField(
            name, f"is no regular expression of RE2, which has no look-around: {said:.200}"
        ) from error


@lru_cache(maxsize=128)
def _steps(pattern: str) -> int:
    options = re2.Options()
    options.log_errors = False
    compiled = re2.compile(pattern.encode(), options)
    steps: int = compiled.programsize
    return steps
