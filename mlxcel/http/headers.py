"""Headers of our own on the answers of the generation routes."""

import logging
import re
from functools import lru_cache

from mlxcel.core.cache import CacheReport
from mlxcel.protocols import cache_words
from mlxcel.protocols.base import Read, ignored_tools
from mlxcel.protocols.kamiwaza.chat import ConversationRead
from mlxcel.protocols.kamiwaza.headers import conversation_headers, early_conversation_headers

log = logging.getLogger(__name__)
IGNORED_TOOLS = "X-Ignored-Tools"
LARGEST_LIST = 64
LONGEST_WORD = 64


def answer_headers(read: Read, *, prompt_tokens: int, report: CacheReport | None) -> dict[str, str]:
    """On an answer in one piece by what was used of the prompt cache in the end, on a stream by
    what was there when the request came."""
    headers = {cache_words.HEADER: cache_words.cache_header(report)} | ignored_header(read)
    if isinstance(read, ConversationRead):
        headers |= conversation_headers(read.requests[0].cache, prompt_tokens, report)
    return headers


def early_headers(read: Read) -> dict[str, str]:
    """The same where they have to leave before anything is known: a stream that begins with a
    keep-alive comment."""
    headers = {cache_words.HEADER: cache_words.PENDING} | ignored_header(read)
    if isinstance(read, ConversationRead):
        headers |= early_conversation_headers(read.requests[0].cache)
    return headers


def ignored_header(read: Read) -> dict[str, str]:
    """Kinds of tools that were left out, each once; what a header cannot say is left out of it."""
    kinds = dict.fromkeys(_word(kind) for kind in ignored_tools(read)[:LARGEST_LIST])
    for kind in kinds:
        _log_once(kind)
    return {IGNORED_TOOLS: ", ".join(kinds)} if kinds else {}


def _word(kind: str) -> str:
    return re.sub(r"[^\w.:/-]", "_", kind, flags=re.ASCII)[:LONGEST_WORD]


@lru_cache(maxsize=256)
def _log_once(kind: str) -> None:
    log.info("tools of the kind %s cannot be run here; requests are answered without them", kind)
