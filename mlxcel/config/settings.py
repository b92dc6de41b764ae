"""The live settings: one published snapshot, changed as a transaction.

A reader takes a reference and never waits; writers hold one lock. Knows the `live` section of
the tree alone; read-only settings are shown as they were at startup.
"""

import copy
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from mlxcel.config.live import difference, fingerprint, frozen, laid, snapshot
from mlxcel.config.schema import rule_of, section_schema
from mlxcel.config.setting_checks import canonical
from mlxcel.config.setting_rows import Row, load_rows, pick, shown, window
from mlxcel.core.errors import MlxcelError, StartupError
from mlxcel.core.settings import Settings

if TYPE_CHECKING:
    from omegaconf import DictConfig

_log = logging.getLogger(__name__)

HISTORY = 1000
"""Changes that are kept."""

Subscriber = Callable[[Settings], None]


class PatchRefused(MlxcelError):
    """An atomic patch with a name that cannot be set; nothing changed."""

    code = "settings_refused"
    status = 409

    def __init__(self, rejected: Sequence[Mapping[str, str]]) -> None:
        reasons = "; ".join(f"{entry['name']}: {entry['reason']}" for entry in rejected)
        super().__init__(f"nothing was changed: {reasons}")
        self.rejected = [dict(entry) for entry in rejected]


class PreconditionFailed(MlxcelError):
    """Somebody changed the settings since the client read them."""

    code = "precondition_failed"
    status = 412

    def __init__(self, wanted: str, fingerprint: str) -> None:
        super().__init__(
            f"If-Match is {wanted}, but the settings have the fingerprint {fingerprint}; "
            "read them again"
        )
        self.fingerprint = fingerprint


class UnknownVersion(MlxcelError):
    """There is no such change, or it is too old to be kept."""

    code = "version_not_found"
    status = 404

    def __init__(self, version: int, first: int, last: int) -> None:
        kept = f"{first} to {last} are kept" if last >= first else "nothing was changed yet"
        super().__init__(f"no change has the version {version}; {kept}", param="version")


class NothingToRevert(MlxcelError):
    code = "nothing_to_revert"
    status = 409

    def __init__(self) -> None:
        super().__init__("there is no change left to undo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """The outcome of a patch; `rejected` holds `{"name", "reason"}` in the order of the body."""

    applied: dict[str, Any]
    rejected: list[dict[str, str]]
    current: dict[str, Any]
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """What is kept of a version, to go back to it."""

    version: int
    values: Mapping[str, Any]
    """HTTP name to canonical value; mutable names alone."""
    undo: int | None
    """The version that undoing leads to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Everything that is published with one assignment."""

    settings: Settings
    live: "DictConfig"
    past: _Past

    @property
    def values(self) -> Mapping[str, Any]:
        return self.past.values


@dataclass(slots=True)
class _Working:
    """One patch being judged; lives under the lock."""

    values: dict[str, Any]
    applied: dict[str, Any] = field(default_factory=dict)
    rejected: list[dict[str, str]] = field(default_factory=list)


class SettingsStore:
    """Implements `core.ports.SettingsSource`. Any thread may call it."""

    def __init__(
        self,
        tree: Mapping[str, Any],
        rows: Sequence[Row],
        schemas: Mapping[str, Mapping[str, Any]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`schemas` has the rule of each live key; the tree is a validated one."""
        self._rows = {row.name: row for row in rows}
        self._rules = schemas
        self._clock = clock
        self._window = window(tree)
        self._fixed = {row.name: shown(row, tree, rows) for row in rows if not row.mutable}
        self._lock = threading.RLock()
        self._subscribers: list[tuple[str, Subscriber]] = []
        values = self._startup_values(tree)
        live = self._laid(frozen({"live": pick(tree, "live")}), values)
        self._startup = self._state_of(live, values, version=0, undo=None)
        self._state = self._startup
        self._pasts: deque[_Past] = deque([self._startup.past], maxlen=HISTORY + 1)
        self._history: deque[dict[str, Any]] = deque(maxlen=HISTORY)

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> "SettingsStore":
        rows = load_rows()
        return cls(tree, rows, live_rules(rows))

    @property
    def current(self) -> Settings:
        return self._state.settings

    @property
    def live(self) -> "DictConfig":
        """The published tree; read-only."""
        return self._state.live

    def describe(self) -> dict[str, Any]:
        """The body of GET /v1/settings."""
        state = self._state
        return {
            "schema": [self._entry(row) for row in self._rows.values()],
            "current": self._shown(state),
            "fingerprint": state.settings.fingerprint,
        }

    def patch(
        self,
        values: Mapping[str, object],
        *,
        op: Literal["merge", "replace"] = "merge",
        atomic: bool = False,
        if_match: str | None = None,
    ) -> Patched:
        """Raises PreconditionFailed, or PatchRefused when atomic; then nothing has changed."""
        with self._lock:
            self._require(if_match)
            start = self._state if op == "merge" else self._startup
            work = _Working(dict(start.values))
            for name, value in values.items():
                self._judge(work, name, value)
            if atomic and work.rejected:
                raise PatchRefused(work.rejected)
            state = self._publish(work.values, undo=self._state.settings.version)
            return self._patched(state, work.applied, work.rejected)

    def history(self) -> list[dict[str, Any]]:
        """Every change that is kept, oldest first: version, time, and each name's old and new."""
        with self._lock:
            return copy.deepcopy(list(self._history))

    def revert(self, version: int | None = None, *, if_match: str | None = None) -> Patched:
        """Goes back to before `version`, or undoes the last change; again undoes the one before.

        Going back is a change of its own, with a version. Raises UnknownVersion or
        NothingToRevert.
        """
        with self._lock:
            self._require(if_match)
            before = self._state.values
            target = self._before(version)
            state = self._publish(target.values, undo=target.undo)
            return self._patched(state, difference(before, state.values), [])

    def subscribe(self, prefix: str, callback: Subscriber) -> None:
        """Calls back after each change of a tree key under the prefix, on the patching thread."""
        with self._lock:
            self._subscribers.append((prefix, callback))

    def _startup_values(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        rows = [row for row in self._rows.values() if row.mutable]
        try:
            return {r.name: canonical(r.key, pick(tree, r.key), self._rules[r.key]) for r in rows}
        except ValueError as error:
            raise StartupError(str(error)) from error

    def _require(self, if_match: str | None) -> None:
        if if_match is None:
            return
        tags = [tag.strip().removeprefix("W/").strip('"') for tag in if_match.split(",")]
        if "*" not in tags and self._state.settings.fingerprint not in tags:
            raise PreconditionFailed(if_match, self._state.settings.fingerprint)

    def _judge(self, work: _Working, name: str, value: object) -> None:
        try:
            kept = self._checked(name, value)
        except ValueError as error:
            work.rejected.append({"name": name, "reason": str(error)})
            return
        work.values[name] = work.applied[name] = kept

    def _checked(self, name: str, value: object) -> Any:
        row = self._rows.get(name)
        if row is None:
            raise ValueError("unknown setting")
        if not row.mutable:
            raise ValueError(f"read-only: {row.reason}")
        kept = canonical(name, value, self._rules[row.key])
        if name == "default_max_tokens" and 0 < self._window < kept:
            raise ValueError(f"{name} must be at most {self._window}, the context of a slot")
        return copy.deepcopy(kept)

    def _publish(self, values: Mapping[str, Any], *, undo: int | None) -> _State:
        """Makes the values the current ones; the same values as now are no change."""
        old = self._state
        if fingerprint(values) == old.settings.fingerprint:
            return old
        changed = difference(old.values, values)
        live = self._laid(old.live, changed)
        new = self._state_of(live, values, version=old.settings.version + 1, undo=undo)
        self._pasts.append(new.past)
        self._history.append(self._change(old, new, changed))
        self._state = new
        self._tell(new, changed)
        return new

    def _laid(self, live: "DictConfig", values: Mapping[str, Any]) -> "DictConfig":
        return laid(live, {self._rows[name].key: value for name, value in values.items()})

    def _state_of(
        self, live: "DictConfig", values: Mapping[str, Any], *, version: int, undo: int | None
    ) -> _State:
        settings = snapshot(live, version, fingerprint(values))
        past = _Past(version=version, values=values, undo=undo)
        return _State(settings=settings, live=live, past=past)

    def _change(self, old: _State, new: _State, changed: Mapping[str, Any]) -> dict[str, Any]:
        pairs = {name: {"old": old.values[name], "new": new.values[name]} for name in changed}
        for name, pair in pairs.items():
            _log.info("setting %s: %.200r -> %.200r", name, pair["old"], pair["new"])
        version = new.settings.version
        return {
            "version": version,
            "time": self._clock(),
            "changes": pairs,
            "fingerprint": new.settings.fingerprint,
        }

    def _tell(self, state: _State, changed: Mapping[str, Any]) -> None:
        keys = [self._rows[name].key for name in changed]
        for prefix, callback in list(self._subscribers):
            if any(f"{key}.".startswith(f"{prefix}.") for key in keys):
                try:
                    callback(state.settings)
                except Exception:
                    _log.exception("a subscriber to %s failed; the change stands", prefix)

    def _before(self, version: int | None) -> _Past:
        """What was before a version, or what undoing leads to."""
        first, last = self._pasts[0].version, self._pasts[-1].version
        wanted = self._state.past.undo if version is None else version - 1
        if wanted is None:
            raise NothingToRevert
        if not first <= wanted < last:
            if version is None:
                raise NothingToRevert
            raise UnknownVersion(version, first + 1, last)
        return self._pasts[wanted - first]

    def _patched(
        self, state: _State, applied: Mapping[str, Any], rejected: list[dict[str, str]]
    ) -> Patched:
        return Patched(
            applied=copy.deepcopy(dict(applied)),
            rejected=rejected,
            current=self._shown(state),
            fingerprint=state.settings.fingerprint,
        )

    def _shown(self, state: _State) -> dict[str, Any]:
        every = {**self._fixed, **state.values}
        return copy.deepcopy({name: every[name] for name in self._rows})

    def _entry(self, row: Row) -> dict[str, Any]:
        default = self._startup.values[row.name] if row.mutable else self._fixed[row.name]
        entry = {
            "name": row.name,
            "type": row.type,
            "default": copy.deepcopy(default),
            "mutable": row.mutable,
            "allowed": self._rules[row.key].get("enum") if row.mutable else None,
            "help": row.help,
        }
        return entry if row.mutable else {**entry, "reason": row.reason}


def live_rules(rows: Sequence[Row]) -> dict[str, Mapping[str, Any]]:
    """Tree key to its JSON Schema, for the rows a PATCH may change."""
    schema = section_schema("live")
    keys = [row.key for row in rows if row.mutable]
    rules = {key: rule_of(schema, key.removeprefix("live.")) for key in keys}
    return {key: rule for key, rule in rules.items() if rule is not None}
