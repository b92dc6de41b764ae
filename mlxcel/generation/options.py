"""What the operator says about chats: the options of the node `text`, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self


class ReasoningFormat(StrEnum):
    """Where thinking is shown."""

    AUTO = "auto"
    """As DEEPSEEK."""
    DEEPSEEK = "deepseek"
    """Thoughts as reasoning, the answer as content."""
    LEGACY = "deepseek-legacy"
    """The same, and content holds everything, markers included."""
    NONE = "none"
    """Everything is content, markers included."""

    @property
    def shows_markers(self) -> bool:
        return self in (ReasoningFormat.LEGACY, ReasoningFormat.NONE)


THINKS = {"auto": None, "on": True, "off": False}
UNSET_EFFORT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    thinks: bool | None = None
    """None: as the model is by itself."""
    effort: str | None = None
    """`reasoning_effort` for the template; None: none of ours."""
    preserves_reasoning: bool = False
    format: ReasoningFormat = ReasoningFormat.AUTO
    budget_message: str = ""
    """Said before a think block that the budget closes."""
    parses: bool = True
    """Whether thoughts and calls are told from the text around them."""
    prefills: bool = True
    """Whether an assistant turn at the end is the beginning of the answer."""
    caches: bool = False
    """The server has a prompt cache."""
    marks_system: bool = False
    """The KV of system messages is kept in a file of its own."""
    echo_bytes: int = 0
    """Of thoughts that are put back into later turns; 0: none."""
    spm_infill: bool = False
    """The code behind a gap is shown before that in front of it."""
    """What changes with every request in the stamp of Claude Code is blanked out."""

    @property
    def echoes_reasoning(self) -> bool:
        """Only where thoughts are told apart from what is said, and nothing twice."""
        return self.caches and self.echo_bytes > 0 and self.parses and not self.format.shows_markers

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        reasoning, cache = options["reasoning"], options["cache"]
        effort = reasoning["effort"]
        message = reasoning["budget_message"]
        return cls(
            thinks=THINKS[reasoning["enabled"]],
            effort=None if effort == UNSET_EFFORT else effort,
            preserves_reasoning=reasoning["preserve"],
            format=ReasoningFormat(reasoning["format"]),
            budget_message="" if message is None else message,
            parses=not options["skip_chat_parsing"],
            prefills=options["prefill_assistant"],
            caches=_is_cache_on(cache["prompt"]),
            marks_system=cache["prefix_dir"] is not None,
            echo_bytes=cache["reasoning_echo_max_bytes"],
            spm_infill=options["spm_infill"],
        )


def _is_cache_on(prompt: Mapping[str, Any]) -> bool:
    """No memory in MiB is the interface's other way of switching it off; bytes beat MiB."""
    has_no_memory = prompt["capacity_bytes"] is None and prompt["ram_mib"] == 0
    return prompt["enabled"] and not has_no_memory
