"""Fill in the middle: the markers a vocabulary has for it, and the text around a gap.

The forms are those the families were trained with; the order of the parts is llama-server's.
"""

from dataclasses import dataclass

from mlxcel.core.errors import NotSupported
from mlxcel.text.vocabulary import Vocabulary

PREFIX = ("<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<PRE>", "\u2581<PRE>", "[PREFIX]")
PREFIX_DEEPSEEK = "<\uff5cfim\u2581begin\uff5c>"
SUFFIX = ("<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<SUF>", "\u2581<SUF>", "[SUFFIX]")
SUFFIX_DEEPSEEK = "<\uff5cfim\u2581hole\uff5c>"
MIDDLE = ("<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<MID>", "\u2581<MID>", "[MIDDLE]")
MIDDLE_DEEPSEEK = "<\uff5cfim\u2581end\uff5c>"
REPOSITORY = ("<|repo_name|>", "<repo_name>", "<reponame>", "<fim-repo>", "<REPO>")
SEPARATOR = ("<|file_sep|>", "<file_sep>", "<|file_separator|>", "<fim-sep>")
PROJECT = "myproject"
NO_SEPARATOR = "\n\n--- snippet ---\n\n"
UNNAMED = "tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers:
    """Words of single tokens; None: there is none."""

    prefix: str | None
    suffix: str | None
    middle: str | None
    repository: str | None
    separator: str | None

    @property
    def lacking(self) -> tuple[str, ...]:
        needed = {"prefix": self.prefix, "suffix": self.suffix, "middle": self.middle}
        return tuple(name for name, word in needed.items() if word is None)

    @property
    def words(self) -> tuple[str, ...]:
        found = (self.prefix, self.suffix, self.middle, self.repository, self.separator)
        return tuple(word for word in found if word is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    prefix: str
    suffix: str
    extra: tuple[tuple[str, str], ...] = ()
    """Other files of the project: names and texts."""


def find_markers(vocabulary: Vocabulary) -> Markers:
    def first(*words: str) -> str | None:
        return next((word for word in words if word in vocabulary), None)

    return Markers(
        prefix=first(*PREFIX, PREFIX_DEEPSEEK),
        suffix=first(*SUFFIX, SUFFIX_DEEPSEEK),
        middle=first(*MIDDLE, MIDDLE_DEEPSEEK),
        repository=first(*REPOSITORY),
        separator=first(*SEPARATOR),
    )


def infill_text(gap: Gap, vocabulary: Vocabulary, *, spm: bool) -> str:
    """`spm`: suffix, prefix, middle; else prefix, suffix, middle. Raises NotSupported without the
    markers. No text of the gap holds one: that was checked."""
    marks = find_markers(vocabulary)
    if marks.prefix is None or marks.suffix is None or marks.middle is None:
        raise NotSupported(
            "the model cannot fill in the middle: its tokenizer has no token for the "
            f"{', '.join(marks.lacking)}"
        )
    before, behind = f"{marks.prefix}{gap.prefix}", f"{marks.suffix}{gap.suffix}"
    parts = (behind, before) if spm else (before, behind)
    return _files(gap, marks) + "".join(parts) + marks.middle


def _files(gap: Gap, marks: Markers) -> str:
    text = "" if marks.repository is None else f"{marks.repository}{PROJECT}\n"
    for name, content in gap.extra:
        if marks.separator is None:
            text += NO_SEPARATOR + content
        else:
            text += f"{marks.separator}{name}\n{content}"
    return text if marks.separator is None else f"{text}{marks.separator}{UNNAMED}\n"
