"""What became of a look-up, as a header and as an object."""

import pytest

from mlxcel.core.cache import CacheReport, CacheStatus, Divergence, Reject, Source
from mlxcel.protocols.cache_words import OFF, cache_body, cache_header

HIT = CacheReport(status=CacheStatus.HIT, reused=2912, source=Source.MEMORY)
PLACE = Divergence(at=70, start=66, prompt_text="a cat", entry_text="a dog")


@pytest.mark.parametrize(
    ("report", "header"),
    [
        pytest.param(HIT, "hit; reused=2912; source=memory", id="hit"),
        pytest.param(
            CacheReport(
                status=CacheStatus.HIT,
                reused=64,
                source=Source.DISK,
                reason=Reject.BLOCK_BOUNDARY_FLOOR,
                diverged=PLACE,
            ),
            "hit; reused=64; source=disk; reason=block_boundary_floor; at=70",
            id="short-hit",
        ),
        pytest.param(
            CacheReport(status=CacheStatus.MISS, reason=Reject.EMPTY_SET),
            "miss; reason=empty_set",
            id="first-prompt",
        ),
        pytest.param(
            CacheReport(
                status=CacheStatus.MISS,
                reason=Reject.EMPTY_SET,
                diverged=Divergence(at=17, differs=("tools",)),
            ),
            "miss; reason=empty_set; differs=tools; at=17",
            id="other-tools",
        ),
        pytest.param(
            CacheReport(
                status=CacheStatus.MISS,
                reason=Reject.SNAPSHOT_DIVERGED,
                diverged=Divergence(at=0, differs=("template", "tool_choice")),
            ),
            "miss; reason=snapshot_diverged; differs=template,tool_choice; at=0",
            id="at-the-beginning",
        ),
        pytest.param(OFF, "off; reason=disabled", id="off"),
        pytest.param(None, "off; reason=disabled", id="engine-without-a-cache"),
    ],
)
def test_header(report: CacheReport | None, header: str) -> None:
    assert cache_header(report) == header


def test_every_reason_and_source_fits_a_header() -> None:
    for reason in Reject:
        for source in Source:
            said = CacheReport(status=CacheStatus.HIT, reused=1, source=source, reason=reason)
            assert cache_header(said) == f"hit; reused=1; source={source}; reason={reason}"


def test_texts_of_a_prompt_never_come_into_a_header() -> None:
    place = Divergence(at=1, prompt_text="a\r\nX-Evil: 1", entry_text="b")
    said = cache_header(CacheReport(status=CacheStatus.MISS, diverged=place))
    assert said == "miss; at=1"


def test_body_has_null_where_there_is_nothing_to_say() -> None:
    assert cache_body(HIT) == {
        "status": "hit",
        "reused_tokens": 2912,
        "source": "memory",
        "reason": None,
        "diverged": None,
    }


def test_body_shows_both_sides() -> None:
    miss = CacheReport(status=CacheStatus.MISS, reason=Reject.PREFIX_TOO_SHORT, diverged=PLACE)
    assert cache_body(miss) == {
        "status": "miss",
        "reused_tokens": 0,
        "source": None,
        "reason": "prefix_too_short",
        "diverged": {"at": 70, "prompt": "a cat", "entry": "a dog", "differs": []},
    }
