"""Whether rounds with heads of the target pay for a row that decodes alone (speculative, 11).

Asked and told by the tick; it sees no row. Knows no clock either: it is told how long steps took.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from mlxcel.core.status import MtpPolicyReport, MtpReason, MtpState, MtpVerdict

log = logging.getLogger(__name__)

SAMPLES = 4
"""Bursts with a round in them that a verdict stands on."""
PROBES = 2
"""Plain steps in each of them, to compare with."""
PAYS = 1.5
"""From so much speed-up on rounds are worth their memory traffic everywhere."""
LOSES = 1.0

Keep = Callable[[MtpVerdict, float], None]
"""Told of a verdict that was measured, once, with the speed-up."""
Tell = Callable[[MtpPolicyReport], None]
"""Told how things stand, at first and whenever something has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """What a verdict holds for."""

    target: str
    drafter: str
    hardware: str
    block_size: int


@dataclass(frozen=True, slots=True)
class Burst:
    """What was measured of one request; times in ms, sums."""

    rounds: int = 0
    round_ms: float = 0.0
    accepted: int = 0
    plains: int = 0
    plain_ms: float = 0.0

    @property
    def counts(self) -> bool:
        """Without a plain step there is nothing to compare its rounds with."""
        return bool(self.rounds and self.plains)


def speed_up(bursts: list[Burst]) -> float:
    """Tokens a round in the time of plain steps. Times are medians over the bursts: in the first
    one kernels are compiled."""
    accepted = sum(burst.accepted for burst in bursts) / sum(burst.rounds for burst in bursts)
    round_ms = median(burst.round_ms / burst.rounds for burst in bursts)
    plain_ms = median(burst.plain_ms / burst.plains for burst in bursts)
    return (accepted + 1) * plain_ms / round_ms


def verdict_of(gain: float, *, default: bool) -> MtpVerdict:
    """`default` decides where the gain is neither here nor there."""
    is_on = default if LOSES < gain < PAYS else gain >= PAYS
    return MtpVerdict.ENABLE if is_on else MtpVerdict.DECLINE


class MtpPolicy:
    """Mutable, owned by the tick. A burst is what one request drafts while it decodes alone:
    `begin`, then `round` and `plain` for its steps, then `end`. Times are those of whole steps,
    drafting included."""

    def __init__(
        self,
        pairing: Pairing,
        *,
        adaptive: bool,
        force: bool | None,
        default: bool,
        declined: str | None = None,
        remembered: MtpVerdict | None = None,
        keep: Keep | None = None,
        tell: Tell | None = None,
    ) -> None:
        """`default`: for whoever cannot tell by measuring. `declined`: how wide steps were found
        to differ from plain ones, where that is not accepted; wins over all but `force` False."""
        self._pairing = pairing
        self._default = default
        self._force = force
        self._declined = declined
        self._keep = keep
        self._tell = tell
        self._verdict = remembered
        self._state = _first_state(adaptive, force, declined, remembered)
        self._samples: list[Burst] = []
        self._burst: Burst | None = None
        self._proposed = 0
        self._accepted = 0
        self._told()

    @property
    def state(self) -> MtpState:
        return self._state

    @property
    def is_enabled(self) -> bool:
        """Whether rounds may run."""
        match self._state:
            case MtpState.PROFILING:
                return True
            case MtpState.SETTLED:
                return self._verdict is MtpVerdict.ENABLE
            case MtpState.FORCED:
                return bool(self._force)
            case MtpState.UNAVAILABLE:
                return self._default
            case MtpState.EXACTNESS_DECLINED:
                return False

    @property
    def is_profiling(self) -> bool:
        return self._state is MtpState.PROFILING

    @property
    def wants_plain(self) -> bool:
        """The next step of the lone row is to be a plain one, read before the next is started."""
        burst = self._burst
        return self.is_profiling and burst is not None and burst.plains < PROBES

    def begin(self) -> None:
        """A request drafts alone from now on."""
        self.end()
        self._burst = Burst()

    def round(self, ms: float, proposed: int, accepted: int) -> None:
        """Outside of a burst it counts for the acceptance rate alone."""
        self._proposed += proposed
        self._accepted += accepted
        if (burst := self._burst) is not None:
            self._burst = replace(
                burst,
                rounds=burst.rounds + 1,
                round_ms=burst.round_ms + ms,
                accepted=burst.accepted + accepted,
            )
        self._told()

    def plain(self, ms: float) -> None:
        """One that was not wanted is not counted: it may have run ahead of its token."""
        if self.wants_plain and (burst := self._burst) is not None:
            self._burst = replace(burst, plains=burst.plains + 1, plain_ms=burst.plain_ms + ms)

    def end(self) -> None:
        """Without effect where none began."""
        burst, self._burst = self._burst, None
        if burst is None or not burst.counts or not self.is_profiling:
            return
        self._samples.append(burst)
        if len(self._samples) == SAMPLES:
            self._settle()
        self._told()

    def report(self) -> MtpPolicyReport:
        is_settled = self._state is MtpState.SETTLED
        count = SAMPLES if is_settled else len(self._samples)
        return MtpPolicyReport(
            state=self._state,
            reason=(MtpReason.ADAPTIVE_DISABLED if self._state is MtpState.UNAVAILABLE else None),
            decline_detail=(self._declined if self._state is MtpState.EXACTNESS_DECLINED else None),
            verdict=self._verdict if is_settled else None,
            mtp_enabled=self.is_enabled,
            target=self._pairing.target,
            drafter=self._pairing.drafter,
            hardware=self._pairing.hardware,
            block_size=self._pairing.block_size,
            acceptance_rate=(round(self._accepted / self._proposed, 2) if self._proposed else None),
            samples=count,
            samples_required=SAMPLES if is_settled or self.is_profiling else 0,
            samples_remaining=SAMPLES - count if self.is_profiling else None,
        )

    def _told(self) -> None:
        if self._tell is not None:
            self._tell(self.report())

    def _settle(self) -> None:
        gain = speed_up(self._samples)
        self._verdict = verdict_of(gain, default=self._default)
        self._state = MtpState.SETTLED
        log.info("mtp: %s, rounds give %.2f times the tokens of plain steps", self._verdict, gain)
        if self._keep is not None:
            self._keep(self._verdict, gain)


def _first_state(
    adaptive: bool, force: bool | None, declined: str | None, remembered: MtpVerdict | None
) -> MtpState:
    if declined is not None and force is not False:
        return MtpState.EXACTNESS_DECLINED
    if force is not None:
        return MtpState.FORCED
    if not adaptive:
        return MtpState.UNAVAILABLE
    return MtpState.PROFILING if remembered is None else MtpState.SETTLED
