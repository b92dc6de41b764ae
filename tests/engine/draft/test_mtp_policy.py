"""Whether MTP is put to use: what is measured, what comes of it, and who overrules it."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.status import MtpPolicyReport, MtpReason, MtpState, MtpVerdict
from mlxcel.engine.draft.mtp.policy import PROBES, SAMPLES, MtpPolicy, Pairing

PAIRING = Pairing(target="t", drafter="d", hardware="h", block_size=3)


@dataclass
class Kept:
    """What the memory was told."""

    verdicts: list[tuple[MtpVerdict, float]] = field(default_factory=list)

    def __call__(self, verdict: MtpVerdict, speed_up: float) -> None:
        self.verdicts.append((verdict, speed_up))


def policy(**changed: Any) -> MtpPolicy:
    options: dict[str, Any] = {"adaptive": True, "force": None, "default": False}
    return MtpPolicy(PAIRING, **(options | changed))


def burst(
    made: MtpPolicy,
    rounds: int = 2,
    *,
    round_ms: float = 10.0,
    plain_ms: float = 10.0,
    accepted: int = 1,
) -> None:
    """As the tick does it: a round, plain steps as long as they are wanted, the other rounds."""
    made.begin()
    for _ in range(rounds):
        made.round(round_ms, proposed=2, accepted=accepted)
        while made.wants_plain:
            made.plain(plain_ms)
    made.end()


def told_of(made: MtpPolicy) -> tuple[MtpState, MtpVerdict | None, bool]:
    report = made.report()
    assert report.mtp_enabled == made.is_enabled
    return report.state, report.verdict, made.is_enabled


PROFILING = (MtpState.PROFILING, None, True)
ENABLED = (MtpState.SETTLED, MtpVerdict.ENABLE, True)
DECLINED = (MtpState.SETTLED, MtpVerdict.DECLINE, False)


def test_four_bursts_settle_it() -> None:
    kept = Kept()
    made = policy(keep=kept)
    for count in range(SAMPLES):
        assert told_of(made) == PROFILING
        report = made.report()
        assert (report.samples, report.samples_required, report.samples_remaining) == (
            *(count, 4),
            4 - count,
        )
        assert not kept.verdicts
        burst(made)
    assert told_of(made) == ENABLED
    report = made.report()
    assert (report.samples, report.samples_required, report.samples_remaining) == (4, 4, None)
    burst(made, round_ms=1000.0)
    assert kept.verdicts == [(MtpVerdict.ENABLE, 2.0)]
    assert told_of(made) == ENABLED


# (accepted + 1) * plain_ms / round_ms
@pytest.mark.parametrize(
    ("measured", "default", "expected"),
    [
        pytest.param({"plain_ms": 7.5}, False, ENABLED, id="1.5-pays"),
        pytest.param({"plain_ms": 7.4}, False, DECLINED, id="between-off"),
        pytest.param({"plain_ms": 7.4}, True, ENABLED, id="between-on"),
        pytest.param({"plain_ms": 5.1}, True, ENABLED, id="just-above-1-on"),
        pytest.param({"plain_ms": 5.0}, True, DECLINED, id="1.0-loses"),
        pytest.param({"accepted": 0}, True, DECLINED, id="nothing-comes-true"),
        pytest.param({"accepted": 2, "plain_ms": 5.0}, False, ENABLED, id="accepted-counts"),
        pytest.param({"round_ms": 30.0}, True, DECLINED, id="dear-rounds"),
    ],
)
def test_the_verdict(measured: Any, default: bool, expected: Any) -> None:
    made = policy(default=default)
    for _ in range(SAMPLES):
        burst(made, **measured)
    assert told_of(made) == expected


def test_one_slow_burst_decides_nothing() -> None:
    """The first round of a process compiles kernels; so may its first plain step."""
    for slow in ({"round_ms": 900.0}, {"plain_ms": 900.0}):
        made = policy()
        burst(made, **slow)
        for _ in range(SAMPLES - 1):
            burst(made, plain_ms=5.0 if "plain_ms" in slow else 10.0)
        assert told_of(made) == (DECLINED if "plain_ms" in slow else ENABLED)


def test_bursts_weigh_by_their_means() -> None:
    made = policy()
    for ms, rounds in ((8.0, 1), (10.0, 1), (10.0, 1), (100.0, 90)):
        burst(made, rounds, round_ms=ms)
    assert told_of(made) == ENABLED


def test_a_burst_without_a_round_does_not_count() -> None:
    made = policy()
    for _ in range(SAMPLES):
        made.begin()
        made.plain(10.0)
        made.end()
    assert made.report().samples == 0
    assert told_of(made) == PROFILING


def test_a_burst_without_a_plain_step_does_not_count() -> None:
    made = policy()
    for _ in range(SAMPLES):
        made.begin()
        made.round(10.0, proposed=2, accepted=1)
        made.end()
    assert made.report().samples == 0


def test_two_plain_steps_are_wanted_in_a_burst() -> None:
    made = policy()
    assert not made.wants_plain
    made.begin()
    for _ in range(PROBES):
        assert made.wants_plain
        made.plain(10.0)
    assert not made.wants_plain
    made.plain(10_000.0)  # not wanted: not counted
    made.round(10.0, proposed=2, accepted=1)
    made.begin()  # the burst before has ended with it
    assert made.wants_plain
    assert made.report().samples == 1
    for _ in range(SAMPLES - 1):
        burst(made)
    assert told_of(made) == ENABLED
    made.begin()
    assert not made.wants_plain


def test_rounds_in_company_count_for_the_rate_alone() -> None:
    made = policy()
    made.round(10.0, proposed=3, accepted=1)
    made.end()
    assert made.report().samples == 0
    assert made.report().acceptance_rate == 0.33


def test_the_rate_is_of_what_was_proposed() -> None:
    made = policy(force=True)
    assert made.report().acceptance_rate is None
    made.round(10.0, proposed=3, accepted=3)
    made.round(10.0, proposed=4, accepted=2)
    assert made.report().acceptance_rate == 0.71


FORCED_ON = (MtpState.FORCED, None, True)
FORCED_OFF = (MtpState.FORCED, None, False)
INEXACT = (MtpState.EXACTNESS_DECLINED, None, False)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"force": True}, FORCED_ON, id="on"),
        pytest.param({"force": False, "default": True}, FORCED_OFF, id="off"),
        pytest.param({"force": True, "adaptive": False}, FORCED_ON, id="over-static"),
        pytest.param({"force": True, "remembered": MtpVerdict.DECLINE}, FORCED_ON, id="over-known"),
        pytest.param({"declined": "x", "default": True}, INEXACT, id="inexact"),
        pytest.param({"declined": "x", "force": True}, INEXACT, id="inexact-over-forced"),
        pytest.param({"declined": "x", "force": False}, FORCED_OFF, id="off-is-off"),
        pytest.param({"declined": "x", "adaptive": False}, INEXACT, id="inexact-over-static"),
        pytest.param({"declined": "x", "remembered": MtpVerdict.ENABLE}, INEXACT, id="inexact-now"),
        pytest.param({"remembered": MtpVerdict.ENABLE}, ENABLED, id="known-on"),
        pytest.param({"remembered": MtpVerdict.DECLINE, "default": True}, DECLINED, id="known-off"),
    ],
)
def test_nothing_is_measured(options: Any, expected: Any) -> None:
    kept = Kept()
    made = policy(**options, keep=kept)
    assert told_of(made) == expected
    assert not made.is_profiling
    for _ in range(SAMPLES):
        burst(made, round_ms=1000.0 if made.is_enabled else 1.0)
    assert told_of(made) == expected
    assert not kept.verdicts


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("remembered", [None, MtpVerdict.ENABLE, MtpVerdict.DECLINE])
def test_the_static_default_alone(default: bool, remembered: MtpVerdict | None) -> None:
    made = policy(adaptive=False, default=default, remembered=remembered)
    assert told_of(made) == (MtpState.UNAVAILABLE, None, default)
    assert made.report().reason is MtpReason.ADAPTIVE_DISABLED
    for _ in range(SAMPLES):
        burst(made)
    assert told_of(made) == (MtpState.UNAVAILABLE, None, default)


def test_every_change_is_told() -> None:
    said: list[MtpPolicyReport] = []
    made = policy(tell=said.append)
    assert said == [made.report()]
    for _ in range(SAMPLES):
        made.begin()
        for _ in range(PROBES):
            made.plain(1.0)
        made.round(10.0, proposed=2, accepted=1)
        assert said[-1] == made.report()
        made.end()
        assert said[-1] == made.report()
    assert said[-1].state is MtpState.SETTLED


def test_what_was_found_of_exactness_is_told() -> None:
    assert policy(declined="input 1 differs").report() == MtpPolicyReport(
        state=MtpState.EXACTNESS_DECLINED,
        decline_detail="input 1 differs",
        mtp_enabled=False,
        target="t",
        drafter="d",
        hardware="h",
        block_size=3,
    )


MS = st.floats(0.001, 1e6)
HOOKS = st.one_of(
    st.tuples(st.just("begin")),
    st.tuples(st.just("end")),
    st.tuples(st.just("plain"), MS),
    st.tuples(st.just("round"), MS, st.integers(1, 7), st.integers(0, 7)),
)


@given(
    hooks=st.lists(HOOKS, max_size=80),
    adaptive=st.booleans(),
    force=st.none() | st.booleans(),
    default=st.booleans(),
    declined=st.none() | st.just("how"),
    remembered=st.none() | st.sampled_from(MtpVerdict),
)
def test_any_order_of_calls(hooks: list[tuple[Any, ...]], **options: Any) -> None:
    kept = Kept()
    made = policy(**options, keep=kept)
    first, was_profiling, plains = made.report(), made.is_profiling, 0
    for name, *given_ in hooks:
        before = made.report()
        match name, given_:
            case "round", [ms, proposed, accepted]:
                made.round(ms, proposed=proposed, accepted=min(proposed, accepted))
            case "plain", [ms]:
                plains += made.wants_plain
                made.plain(ms)
            case "begin", _:
                made.begin()
                plains = 0
            case _:
                made.end()
        after = made.report()
        assert plains <= PROBES
        assert after.samples - before.samples in {0, 1}
        if before.state is not MtpState.PROFILING:
            assert told_of(made) == (before.state, before.verdict, before.mtp_enabled)
        if after.state is MtpState.PROFILING:
            assert after.samples + (after.samples_remaining or 0) == SAMPLES
            assert after.mtp_enabled
            assert after.samples_remaining
        assert (after.reason is not None) == (after.state is MtpState.UNAVAILABLE)
        assert (after.verdict is not None) == (after.state is MtpState.SETTLED)
        assert (after.decline_detail is not None) == (after.state is MtpState.EXACTNESS_DECLINED)
        assert (after.samples_remaining is not None) == (after.state is MtpState.PROFILING)
    is_new = was_profiling and not made.is_profiling
    assert len(kept.verdicts) == is_new
    if not was_profiling:
        assert told_of(made)[0] is first.state
