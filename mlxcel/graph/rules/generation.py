"""From messages to tokens: samplers, thinking, languages."""

from collections.abc import Iterator

from mlxcel.config.keys import read
from mlxcel.core.card import Card
from mlxcel.graph.rules.finding import Finding, Settled, Tree

ADAPTIVE = "generation.sampling.adaptive"
THINKING = "generation.reasoning.enabled"
ALIAS = "generation.reasoning.alias_field"
LANGUAGES = "live.lang_bias"


def adaptive_named(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """A target alone does not arm the sampler: the list of samplers has to name it."""
    target = read(tree, f"{ADAPTIVE}.target")
    if target >= 0 and not read(tree, f"{ADAPTIVE}.named"):
        yield (
            f"{ADAPTIVE}.target={target} has no effect: the list of samplers does not name "
            f"adaptive_p (--samplers, {ADAPTIVE}.named=true)"
        )


def reasoning_words(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """YAML reads `on` and `off` as booleans; `none` is how the interface says no alias."""
    enabled = read(tree, THINKING)
    if isinstance(enabled, bool):
        yield Settled(key=THINKING, used="on" if enabled else "off")
    if read(tree, ALIAS) == "none":
        yield Settled(key=ALIAS, used=None)


def languages_named(tree: Tree, card: Card | None) -> Iterator[Finding]:
    """Flags set a policy and exceptions one by one; without a language they are for nothing."""
    bias = read(tree, LANGUAGES)
    if bias is None or (card is None and read(tree, "generation.lang_bias.file") is not None):
        return
    if not bias.get("bias_set", {}).get("ordered"):
        yield f"{LANGUAGES} has no effect: it names no language (--lang-bias ja=-5)"
        yield Settled(key=LANGUAGES, used=None)
