"""What became of a request's look-up in the prompt cache, as words of an answer.

The same in every dialect: a header for whoever looks at a log, an object for whoever reads the
timings.
"""

from collections.abc import Iterator
from typing import Any

from mlxcel.core.cache import CacheReport, CacheStatus, Divergence, Reject

HEADER = "X-Cache-Status"
PENDING = "pending"
"""Of a stream whose headers had to leave before the worker said what is there."""
OFF = CacheReport(status=CacheStatus.OFF, reason=Reject.DISABLED)


def cache_header(report: CacheReport | None) -> str:
    """`hit; reused=2912; source=memory`, `miss; reason=empty_set; differs=tools; at=17`. None is
    an engine without a prompt cache."""
    return "; ".join(_words(OFF if report is None else report))


def cache_body(report: CacheReport) -> dict[str, Any]:
    """`timings.cache`: always the same keys, null where there is nothing to say."""
    return {
        "status": report.status,
        "reused_tokens": report.reused,
        "source": report.source,
        "reason": report.reason,
        "diverged": None if report.diverged is None else _diverged_body(report.diverged),
    }


def _words(report: CacheReport) -> Iterator[str]:
    yield report.status
    if report.status is CacheStatus.HIT:
        yield f"reused={report.reused}"
    if report.source is not None:
        yield f"source={report.source}"
    if report.reason is not None:
        yield f"reason={report.reason}"
    if report.diverged is not None:
        if report.diverged.differs:
            yield f"differs={','.join(report.diverged.differs)}"
        yield f"at={report.diverged.at}"


def _diverged_body(diverged: Divergence) -> dict[str, Any]:
    return {
        "at": diverged.at,
        "prompt": diverged.prompt_text,
        "entry": diverged.entry_text,
        "differs": list(diverged.differs),
    }
