"""One hostile request: the bytes, the pauses between them, and how the client ends."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from random import Random

from tests.whole.fuzz_targets import Target


class Ending(Enum):
    READ = auto()
    """Everything is read, to the last byte."""
    HALF = auto()
    """The client says that it sends no more, and reads."""
    RESET = auto()
    """What was sent is not finished, or the answer is not read: the connection is torn down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    target: Target
    pieces: tuple[bytes | float, ...]
    """Bytes to send, and seconds to wait."""
    method: str
    kind: str = ""
    ending: Ending = Ending.READ
    must_answer: bool = True
    """False where the client broke off, or where what it still sends may tear the answer away."""
    is_plain: bool = False
    """The head is as it should be: the route is found, and its own envelope is due."""
    version: str = "1.1"
    answers: int = 1
    """How many have to come; whatever follows has to be one too."""
    bytes_read: int = 0
    """Before a RESET."""
    waits_for_100: bool = False
    """The last piece is sent when the server asks for it."""


Maker = Callable[[Random, Target], Attack]
KINDS: dict[str, Maker] = {}


def kind(make: Maker) -> Maker:
    KINDS[make.__name__] = make
    return make


def attack(target: Target, *pieces: bytes | float, **how: object) -> Attack:
    fields = {"method": target.method, **how}
    return Attack(target=target, pieces=pieces, **fields)  # type: ignore[arg-type]
