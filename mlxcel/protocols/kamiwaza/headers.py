"""What answers say of their conversation in headers (seed-kamiwaza, 5)."""

from urllib.parse import quote

from mlxcel.core.cache import CacheReport, CacheStatus, CacheUse

ID = "X-Conv-Id"
KV = "X-Conv-KV"
CACHED = "X-Conv-Cached-Tokens"
PROCESSING = "X-Conv-Processing-Tokens"
PENDING = "pending"
PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


def conversation_headers(
    use: CacheUse, prompt_tokens: int, report: CacheReport | None
) -> dict[str, str]:
    """An id is escaped like a URL where it is no plain text: nobody writes headers by it."""
    cached = 0 if report is None else report.reused
    return {
        ID: _shown(use.conversation),
        KV: _kv(use, report),
        CACHED: str(cached),
        PROCESSING: str(prompt_tokens - cached),
    }


def early_conversation_headers(use: CacheUse) -> dict[str, str]:
    """Where they have to leave before the prompt was looked up: numbers would be made up."""
    return {ID: _shown(use.conversation), KV: PENDING}


def _shown(conversation: str | None) -> str:
    return "" if conversation is None else quote(conversation, safe=PRINTABLE + " ")


def _kv(use: CacheUse, report: CacheReport | None) -> str:
    if use.conversation is None or use.is_reset:
        return "none"
    if not use.is_on or report is None or report.status is CacheStatus.OFF:
        return "disabled"
    if report.reused == 0 or report.is_system:
        return "fresh"
    return "snapshot" if report.is_older else "hit"
