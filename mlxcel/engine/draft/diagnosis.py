"""What became of the proposals of one request, in a line of the log once it is over
(`draft.accept_diag`)."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from mlxcel.core.sampling import SamplingParams
from mlxcel.engine.draft.draws import can_reject

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Tally:
    """Over all choices. Mutable, owned by the tick."""

    rule: str
    """`greedy`, `match` or `rejection`."""
    is_lookup: bool
    """Its proposals cost nothing; more is told of when there were none."""
    steps: int = 0
    """In which it might have proposed something, rounds included."""
    paused: int = 0
    """Those in which the governor had it rest."""
    rounds: int = 0
    proposed: int = 0
    tested: list[int] = field(default_factory=list)
    """How often the first token of a proposal was tested, the second, and so on: as often as those
    before it were accepted."""
    accepted: list[int] = field(default_factory=list)
    """How often it was accepted."""
    sightings: int = 0
    """Tokens that came true which were not proposed, only foreseen."""

    def passed(self, *, is_paused: bool) -> None:
        """A step without a proposal."""
        self.steps += 1
        self.paused += is_paused

    def took(self, proposed: int, accepted: int) -> None:
        """A round."""
        self.steps += 1
        self.rounds += 1
        self.proposed += proposed
        missing = proposed - len(self.tested)
        self.tested += [0] * missing
        self.accepted += [0] * missing
        for place in range(min(accepted + 1, proposed)):
            self.tested[place] += 1
            self.accepted[place] += place < accepted

    def came_true(self, is_right: bool) -> None:
        self.sightings += is_right

    def lines(self) -> list[str]:
        """None without a round."""
        if not self.rounds:
            return []
        accepted = sum(self.accepted)
        places = zip(self.accepted, self.tested, strict=True)
        said = _line(
            "Speculative acceptance",
            rule=self.rule,
            rounds=self.rounds,
            proposed=self.proposed,
            positions_tested=sum(self.tested),
            accepted=accepted,
            per_position_acceptance=[kept / tested for kept, tested in places if tested],
            acceptance_rate=accepted / self.proposed,
            mean_accepted_len=(accepted + self.rounds) / self.rounds,
        )
        return [said, self._lookup_line(accepted)] if self.is_lookup else [said]

    def tell(self) -> None:
        for line in self.lines():
            log.info("%s", line)

    def _lookup_line(self, accepted: int) -> str:
        return _line(
            "Prompt lookup",
            rounds=self.steps,
            drafted_rounds=self.rounds,
            paused_rounds=self.paused,
            proposed=self.proposed,
            accepted=accepted,
            acceptance_rate=accepted / self.proposed,
            tokens_per_forward=(accepted + self.steps) / self.steps,
            shadow_confirmations=self.sightings,
        )


def rule_of(sampling: SamplingParams, *, rejects: bool) -> str:
    """`rejects`: where it can be, the rule is modified rejection."""
    if sampling.is_greedy:
        return "greedy"
    return "rejection" if rejects and can_reject(sampling) else "match"


def _line(name: str, **values: str | int | float | Sequence[float]) -> str:
    said = (f"{key}={_said(value)}" for key, value in values.items())
    return f"[{name}] {' '.join(said)}"


def _said(value: str | int | float | Sequence[float]) -> str:
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.3f}"
    return ",".join(map(_said, value))
