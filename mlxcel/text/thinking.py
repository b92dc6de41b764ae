"""How a model marks its thinking: the pair of markers its vocabulary knows, and whether a prompt
ends inside a block of it.
"""

import logging
from dataclasses import dataclass
from enum import Enum

from mlxcel.core.think_marks import PAIRS, token_of
from mlxcel.text.tokenizer import TextModel

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    opening: str
    closing: str
    open_ids: tuple[int, ...]
    close_ids: tuple[int, ...]
    hides_closing: bool = False
    """The closing marker is a special token: it says nothing where no block is open."""


class Phase(Enum):
    """Where a prompt leaves the model."""

    PENDING = "pending"
    """It may begin to think."""
    OPEN = "open"
    CLOSED = "closed"


def find_marks(text: TextModel) -> Marks | None:
    """The first pair that is in the vocabulary."""
    for opening, closing in PAIRS:
        open_ids, close_ids = _ids(text, opening), _ids(text, closing)
        if open_ids and close_ids:
            found = Marks(
                opening=opening,
                closing=closing,
                open_ids=open_ids,
                close_ids=close_ids,
                hides_closing=closing in text.vocabulary.specials,
            )
            log.info(
                "the model thinks between %s and %s (%d and %d tokens)",
                opening,
                closing,
                len(open_ids),
                len(close_ids),
            )
            return found
    return None


def spelt_marks(text: TextModel, template: str) -> Marks | None:
    """The first pair that a chat template writes, in a vocabulary of bytes: it has no markers, and
    spells these. None for any other vocabulary."""
    for opening, closing in PAIRS:
        open_ids, close_ids = text.encode(opening), text.encode(closing)
        if open_ids != list(opening.encode()) or close_ids != list(closing.encode()):
            continue
        if opening in template and closing in template:
            return Marks(
                opening=opening,
                closing=closing,
                open_ids=tuple(open_ids),
                close_ids=tuple(close_ids),
            )
    return None


def _ids(text: TextModel, marker: str) -> tuple[int, ...]:
    """Empty when the marker, or the token it begins with, is not in the vocabulary."""
    token = text.vocabulary.id_of(marker)
    if token is not None:
        return (token,)
    head = token_of(marker)
    if head == marker or head not in text.vocabulary:
        return ()
    return tuple(text.encode(marker))


def primed_pair(prompt: str) -> tuple[str, str] | None:
    """The pair whose opening stands at the end of a rendered prompt; whatever the vocabulary
    says, for templates are written as text."""
    end = prompt.rstrip()
    return next((pair for pair in PAIRS if end.endswith(pair[0])), None)


def phase_after(prompt: str, begun: str, marks: Marks) -> Phase:
    """`begun` is what of the answer stands at the end of `prompt` already. Only that and the
    last words of the template are looked at: a client may write about markers."""
    opened, closed = begun.rfind(marks.opening), begun.rfind(marks.closing)
    if opened != closed:
        return Phase.OPEN if opened > closed else Phase.CLOSED
    head = prompt[: len(prompt) - len(begun)].rstrip()
    if head.endswith(marks.opening):
        return Phase.OPEN
    is_answering = bool(begun.strip()) or head.endswith(marks.closing)
    return Phase.CLOSED if is_answering else Phase.PENDING
