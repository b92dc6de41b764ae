"""The stamp of Claude Code is pinned, and nothing else is touched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.protocols.anthropic.stamp import HEAD, pin_stamp


@pytest.mark.parametrize(
    ("sent", "rendered"),
    [
        pytest.param(
            f"{HEAD}: cc_version=2.1.37.a9c; cc_entrypoint=cli; cch=4be20;",
            f"{HEAD}: cc_version=2.1.37.fff; cc_entrypoint=cli; cch=fffff;",
            id="both",
        ),
        pytest.param(
            f"{HEAD}: cc_version=2.1.37; cch=4be20;",
            f"{HEAD}: cc_version=2.1.37; cch=fffff;",
            id="version-of-three-parts",
        ),
        pytest.param(
            f"{HEAD}: cc_version=2.1.37.a9c; x=1;",
            f"{HEAD}: cc_version=2.1.37.fff; x=1;",
            id="no-cch",
        ),
        pytest.param(f"{HEAD}: cch=4be20", f"{HEAD}: cch=fffff", id="ends-with-the-text"),
        pytest.param(
            f"{HEAD}: cch=4be20 You are", f"{HEAD}: cch=fffff You are", id="ends-at-a-space"
        ),
        pytest.param(
            f"{HEAD}: cc_version=2.1.37.a9c.7;",
            f"{HEAD}: cc_version=2.1.37.fff.7;",
            id="fifth-part-stays",
        ),
        pytest.param(
            f"{HEAD}: cch=4be20;\nsay cch=4be20;",
            f"{HEAD}: cch=fffff;\nsay cch=4be20;",
            id="only-the-first-line",
        ),
        pytest.param(
            f"{HEAD}: xcch=4be20; cc_versions=1.2.3.4;",
            f"{HEAD}: xcch=4be20; cc_versions=1.2.3.4;",
            id="names-are-whole",
        ),
        pytest.param(f"  {HEAD}: cch=4be20;", f"  {HEAD}: cch=4be20;", id="leading-spaces"),
        pytest.param(f"Say {HEAD}: cch=4be20;", f"Say {HEAD}: cch=4be20;", id="in-the-middle"),
        pytest.param("X-Anthropic-Billing-Header: cch=1;", "X-Anthropic-Billing-Header: cch=1;"),
        pytest.param(HEAD, HEAD, id="empty-stamp"),
        pytest.param("", "", id="empty"),
    ],
)
def test_pinned(sent: str, rendered: str) -> None:
    assert pin_stamp(sent) == rendered


@given(st.text(), st.text(alphabet="cch=_version.;: \n09af"))
def test_length_never_changes_and_pinning_twice_changes_nothing(text: str, stamp: str) -> None:
    for sent in (text, HEAD + stamp):
        once = pin_stamp(sent)
        assert len(once) == len(sent)
        assert pin_stamp(once) == once
