"""The live settings: one published snapshot, changed as a transaction.

A reader takes a reference and never waits; writers hold one lock. Knows the `live` section of
the tree alone; read-only settings are shown as they were at startup.
"""

import copy
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from mlxcel.config.keys import LIVE, read
from mlxcel.config.live import difference, fingerprint, frozen, laid, snapshot
from mlxcel.config.live_rules import Rules, live_rules
from mlxcel.config.setting_checks import canonical
from mlxcel.config.setting_history import History, Past, brief
from mlxcel.config.setting_rows import Row, live_keys, load_rows, shown
from mlxcel.core.errors import PatchRefused, PreconditionFailed, StartupError
from mlxcel.core.settings import Settings

if TYPE_CHECKING:
    from omegaconf import DictConfig

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """The outcome of a patch; `rejected` holds `{"name", "reason"}` in the order of the body."""

    applied: dict[str, Any]
    rejected: list[dict[str, str]]
    current: dict[str, Any]
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Everything that is published with one assignment."""

    settings: Settings
    live: "DictConfig"
    past: Past

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
    """The live settings. Any thread may call it."""

    def __init__(
        self,
        tree: Mapping[str, Any],
        rows: Sequence[Row],
        rules: Rules,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`tree` is that of a plan. Raises StartupError for a live value that breaks its rule."""
        self._rows = {row.name: row for row in rows}
        self._keys = live_keys(rows)
        self._rules = rules
        self._clock = clock
        self._fixed = {row.name: shown(row, tree, rows) for row in rows if not row.mutable}
        self._lock = threading.RLock()
        values = self._startup_values(tree)
        live = self._laid(frozen({LIVE: tree[LIVE]}), values)
        self._startup = self._state_of(live, values, version=0, undo=None)
        self._state = self._startup
        self._history = History(self._startup.past)

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> "SettingsStore":
        rows = load_rows()
        return cls(tree, rows, live_rules(rows, tree))

    @property
    def current(self) -> Settings:
        return self._state.settings

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
            return self._history.changes()

    def revert(self, version: int | None = None, *, if_match: str | None = None) -> Patched:
        """Goes back to before `version`, or undoes the last change; again undoes the one before.

        Going back is a change of its own, with a version. Raises UnknownVersion or
        NothingToRevert.
        """
        with self._lock:
            self._require(if_match)
            before = self._state.values
            history = self._history
            target = history.undone() if version is None else history.before(version)
            state = self._publish(target.values, undo=target.undo)
            return self._patched(state, difference(before, state.values), [])

    def _startup_values(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        keys = self._keys.items()
        try:
            return {name: canonical(k, read(tree, k), self._rules[k]) for name, k in keys}
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
        return copy.deepcopy(canonical(name, value, self._rule(name)))

    def _publish(self, values: Mapping[str, Any], *, undo: int | None) -> _State:
        """Makes the values the current ones; the same values as now are no change."""
        old = self._state
        if fingerprint(values) == old.settings.fingerprint:
            return old
        changed = difference(old.values, values)
        live = self._laid(old.live, changed)
        new = self._state_of(live, values, version=old.settings.version + 1, undo=undo)
        self._history.add(new.past, self._change(old, new, changed))
        self._state = new
        return new

    def _laid(self, live: "DictConfig", values: Mapping[str, Any]) -> "DictConfig":
        return laid(live, {self._keys[name]: value for name, value in values.items()})

    def _rule(self, name: str) -> Mapping[str, Any]:
        return self._rules[self._keys[name]]

    def _state_of(
        self, live: "DictConfig", values: Mapping[str, Any], *, version: int, undo: int | None
    ) -> _State:
        settings = snapshot(live, version, fingerprint(values))
        past = Past(version=version, values=values, undo=undo)
        return _State(settings=settings, live=live, past=past)

    def _change(self, old: _State, new: _State, changed: Mapping[str, Any]) -> dict[str, Any]:
        pairs = {
            name: {"old": brief(old.values[name]), "new": brief(new.values[name])}
            for name in changed
        }
        for name, pair in pairs.items():
            _log.info("setting %s: %.200r -> %.200r", name, pair["old"], pair["new"])
        return {
            "version": new.settings.version,
            "time": self._clock(),
            "changes": pairs,
            "fingerprint": new.settings.fingerprint,
        }

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
            "allowed": self._allowed(row),
            "help": row.help,
        }
        return entry if row.mutable else {**entry, "reason": row.reason}

    def _allowed(self, row: Row) -> list[str] | None:
        words = self._rule(row.name).get("enum") if row.mutable else row.allowed
        return None if words is None else list(words)
