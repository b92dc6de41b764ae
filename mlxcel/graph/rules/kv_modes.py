"""How keys and values are stored: one mode, whichever way it was said, that the family can have."""

from collections.abc import Iterator

from mlxcel.config.keys import read
from mlxcel.core.card import Card
from mlxcel.core.kv_modes import ALIASES, LATENT, PAIRS, PLAIN, PLAIN_ONLY, SYMMETRIC, TYPE_ALIASES
from mlxcel.core.problem import Problem
from mlxcel.graph.rules.finding import Finding, Settled, Tree
from mlxcel.graph.spec import Clamp

MODE = "cache.kv.mode"
KEYS = "cache.kv.type_k"
VALUES = "cache.kv.type_v"
BITS = "cache.kv.bits"
SCHEME = "cache.kv.scheme"
KEY_TYPES = frozenset({"fp16", "f16", "int8", "turbo4"})
"""`turbo4-asym` and its like say in their name that the keys stay as they are."""
VALUE_TYPES = KEY_TYPES | {"turbo4-asym", "turbo4-delegated", "turbo3", "turbo3-asym"}
OF_LLAMA = frozenset({"q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1", "f32", "bf16"})


def types_make_mode(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """From here on there is one mode, by its own name."""
    asked = read(tree, MODE)
    if read(tree, KEYS) is None and read(tree, VALUES) is None:
        if asked in ALIASES:
            yield Settled(key=MODE, used=ALIASES[asked])
        return
    if (problem := _bad_types(tree)) is not None:
        yield problem
        return
    made = PAIRS[_types(tree)]
    if ALIASES.get(asked, asked) not in (PLAIN, made):
        yield f"{MODE}={asked} has no effect: {KEYS} and {VALUES} beat it"
    yield from (Settled(key=key, used=None) for key in (KEYS, VALUES))
    yield Settled(key=MODE, used=made)


def one_quantisation(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """Both would write the same KV."""
    bits, mode = read(tree, BITS), read(tree, MODE)
    if bits and mode != PLAIN:
        yield Problem(
            key=BITS,
            value=bits,
            rule=f"cannot be combined with {MODE}={mode}",
            hint=f"{BITS}=0, or {MODE}={PLAIN}",
        )
    if bits == 8 and read(tree, SCHEME) == "turboquant":
        yield Problem(
            key=BITS,
            value=bits,
            rule=f"is not what {SCHEME}=turboquant takes",
            hint=f"4 bits, or {SCHEME}=uniform",
        )


def mode_of_family(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """What can be told from the family's name; sizes of heads are the worker's to look at."""
    mode = read(tree, MODE)
    if card is None or mode == PLAIN:
        return
    family = card.family
    if family in PLAIN_ONLY:
        yield Problem(
            key=MODE, value=mode, rule=f"cannot work with family {family}", hint=f"{MODE}={PLAIN}"
        )
    elif family in LATENT:
        reason = f"family {family} keeps one compressed vector for keys and values"
        yield Clamp(key=MODE, asked=mode, used=PLAIN, reason=reason)
    elif mode == "turbo4" and family not in SYMMETRIC:
        reason = f"keys of family {family} do not bear 4 bits"
        yield Clamp(key=MODE, asked=mode, used="fp16+turbo4", reason=reason)


def _types(tree: Tree) -> tuple[str, str]:
    """Of keys and of values; what is not said is `fp16`."""
    keys, values = (read(tree, key) or PLAIN for key in (KEYS, VALUES))
    return TYPE_ALIASES.get(keys, keys), TYPE_ALIASES.get(values, values)


def _bad_types(tree: Tree) -> Problem | None:
    for key, known in ((KEYS, KEY_TYPES), (VALUES, VALUE_TYPES)):
        asked = read(tree, key)
        if asked is not None and asked not in known:
            return Problem(key=key, value=asked, rule=_why_unknown(asked, known), hint=_WORKING)
    return None if _types(tree) in PAIRS else _odd_pair(tree)


def _odd_pair(tree: Tree) -> Problem:
    """Told of the side that was given, and of the values where both were."""
    keys, values = _types(tree)
    if read(tree, VALUES) is None:
        rule = f"does not go with values of {values}, as they are without {VALUES}"
        return Problem(key=KEYS, value=read(tree, KEYS), rule=rule, hint=_WORKING)
    rule = f"does not go with keys of {keys}"
    if read(tree, KEYS) is None:
        rule += f", as they are without {KEYS}"
    return Problem(key=VALUES, value=read(tree, VALUES), rule=rule, hint=_WORKING)


def _why_unknown(asked: object, known: frozenset[str]) -> str:
    if asked in OF_LLAMA:
        return "is a type of llama.cpp that MLX does not store"
    return f"is none of {', '.join(sorted(known))}"


_WORKING = "pairs of keys and values that work: " + ", ".join(f"{k}/{v}" for k, v in PAIRS)
