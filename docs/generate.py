"""Writes docs/reference/ from conf/ and schemas/, so that no page says what the files do not.

`make docs` runs it; tests/test_docs.py compares what it would write with what is there.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from docs.llama_server import option_rows, options, own_rows
from docs.route_pages import page as route_page
from docs.route_pages import pages as route_pages
from docs.tables import code as _code
from docs.tables import table as _table
from docs.tables import top as _top
from mlxcel.config import layers
from mlxcel.config.flag_table import Row as FlagRow
from mlxcel.config.flag_table import load_table
from mlxcel.config.keys import leaves, read
from mlxcel.config.paths import data_dir
from mlxcel.config.problems import shown
from mlxcel.config.rules import described
from mlxcel.config.schema import Schema, rule_of, section_schema, tree_schema, walk
from mlxcel.config.setting_rows import Row as SettingRow
from mlxcel.config.setting_rows import load_rows

REFERENCE = Path(__file__).resolve().parent / "reference"
CONF = data_dir("conf")
HIDDEN = ("node", "rows")
"""How a section is built, and the route table: no keys to set, shown elsewhere."""


def flags_page() -> Iterator[str]:
    table = load_table()
    yield from _top("Flags and variables", "conf/flags.yaml")
    yield "A flag, its variable and its key set the same value. Highest first: command line,"
    yield "variables (of several in a row the first wins, unless they add up), recipes, your"
    yield "folder, `conf/`."
    yield "\nCommands:\n"
    yield from _table(
        ("command", "does"),
        ((_code(f"mlxcel {n} {c.words}".rstrip()), c.help) for n, c in table.commands.items()),
    )
    for title, rows in table.sections.items():
        yield f"\n## {title}\n"
        yield from _table(("flags", "key", "variables", "does"), map(_flag, rows))


def _flag(row: FlagRow) -> tuple[str, ...]:
    value = f" {row.metavar}" if row.metavar and row.flags else ""
    flags = ", ".join(_code(flag) for flag in (*row.flags, *row.negated)) + value
    place = row.key or {"recipes": "recipes", "config_dirs": ""}.get(row.ask, "")
    only = f" (`mlxcel {row.command}` only)" if row.command else ""
    return flags, _code(place), ", ".join(map(_code, row.env)), _flag_text(row) + only


def _flag_text(row: FlagRow) -> str:
    if row.type in ("inert", "refused"):
        return f"{_fate(row)}: {row.reason}"
    return f"{row.help} (takes {', '.join(row.allowed)})" if row.allowed else row.help


def _fate(row: FlagRow) -> str:
    if row.has_neutral_value:
        return "Accepted as long as it changes nothing"
    return "Accepted, without effect" if row.type == "inert" else "Refused"


def llama_server_page() -> Iterator[str]:
    yield from _top("Options of llama-server", "docs/llama_server.yaml and conf/flags.yaml")
    yield "What becomes of each option of llama-server here: *same*, *different* with how, *no"
    yield "effect* with why nothing is lost, or *refused* with the reason: the start says it and"
    yield "ends. A variable counts like its flag. Fields and routes: [dialects](../dialects.md)."
    for title, rows in options().items():
        yield f"\n## {title}\n"
        yield from _table(("option", "variables", "here", "how, or why"), option_rows(rows))
    yield "\n## Only here\n"
    yield from _table(("flag", "sets"), own_rows())


def routes_page() -> Iterator[str]:
    yield from _top("Routes", "conf/routes/")
    yield "The first path names a route, the others are aliases. `server.api_prefix` goes before"
    yield "every path. A route with a switch is mounted when that key is true."
    for file in sorted((CONF / "routes" / "rows").glob("*.yaml")):
        yield f"\n## {file.stem}\n"
        yield f"Fields and answers: [{file.stem}](routes-{file.stem}.md).\n"
        yield from _table(
            ("methods", "paths", "key needed", "needs", "switch", "handler"),
            map(_route, _yaml(file).values()),
        )


def _route(row: Mapping[str, Any]) -> tuple[str, ...]:
    codec = f" with codec `{row['codec']}`" if "codec" in row else ""
    return (
        ", ".join(row["methods"]),
        "<br>".join(map(_code, row["paths"])),
        "no" if row["auth"] == "none" else "yes",
        ", ".join(map(_code, row["needs"])),
        _code(row["when"]) if isinstance(row["when"], str) else "",
        _code(row["handler"]) + codec,
    )


def settings_page() -> Iterator[str]:
    live = section_schema("live")
    rows = load_rows()
    yield from _top("Settings", "conf/settings.yaml and schemas/live.schema.json")
    yield "What `GET /v1/settings` shows, in its order. See [settings](../settings.md)."
    yield "\n## Changeable while the server runs\n"
    yield from _table(
        ("name", "key", "takes", "default", "is"),
        (_live(row, live) for row in rows if row.mutable),
    )
    yield "\n## Shown only\n"
    yield from _table(
        ("name", "key", "type", "why it needs a restart"),
        (
            (
                _code(row.name),
                _code(row.key),
                row.type,
                row.reason.removesuffix("; restart required"),
            )
            for row in rows
            if not row.mutable
        ),
    )


def _live(row: SettingRow, live: Schema) -> tuple[str, ...]:
    inner = row.key.removeprefix("live.")
    rule = rule_of(live, inner)
    assert rule is not None, f"{row.key} is not in the schema"
    default = read(_yaml(CONF / "live" / "default.yaml"), inner)
    return _code(row.name), _code(row.key), described(rule), _code(shown(default)), row.help


def config_page() -> Iterator[str]:
    yield from _top("Configuration", "conf/, recipes/ and schemas/")
    yield "A group is chosen by `group=option`, a key is set by `key=value`. Values and comments of"
    yield "an option stand in `conf/<group>/<option>.yaml`."
    yield "\n## Groups and their options\n"
    yield from _table(("group", "option", "is"), _options())
    for section, kind in _sections():
        yield f"\n## {section}{f' (kind: {kind})' if kind else ''}\n"
        yield from _table(("key", "takes", "default", "is"), _keys(section, kind))


def _options() -> Iterator[tuple[str, ...]]:
    defaults = {
        group: option
        for entry in _yaml(CONF / "config.yaml")["defaults"]
        if isinstance(entry, dict)
        for group, option in entry.items()
    }
    for group in layers.groups():
        for option in layers.options(group, _search()):
            mark = " (default)" if option == defaults[group] else ""
            yield _code(group), _code(option) + mark, _sentence(_file(group, option))


def _sections() -> Iterator[tuple[str, str]]:
    """A section with kinds once per kind: model and engine differ by it."""
    for group in layers.groups():
        if group == layers.RECIPES:
            continue
        kinds = ("mlx", "echo") if group in ("model", "engine") else ("",)
        yield from ((group, kind) for kind in kinds)


def _keys(section: str, kind: str) -> Iterator[tuple[str, ...]]:
    schema = tree_schema({section: {"kind": kind}})["properties"][section]
    defaults = dict(leaves(_merged(section, _default_option(section, kind))))
    for inner, rule in walk(schema):
        is_section = "properties" in rule and inner not in defaults
        if is_section or inner.split(".")[0] in HIDDEN:
            continue
        value = _code(shown(defaults[inner])) if inner in defaults else ""
        yield _code(f"{section}.{inner}"), described(rule), value, rule.get("description", "")


def _default_option(section: str, kind: str) -> str:
    if kind:
        return "default" if (section, kind) == ("model", "mlx") else kind
    [option] = [e[section] for e in _yaml(CONF / "config.yaml")["defaults"] if section in e]
    return str(option)


def _merged(group: str, option: str) -> dict[str, Any]:
    """A group file over the fragments that its own defaults list names."""
    tree = _yaml(_file(group, option))
    below: dict[str, Any] = {}
    for entry in tree.pop("defaults", ()):
        if isinstance(entry, str) and entry != "_self_" and not entry.startswith("rows/"):
            below |= _merged(group, entry)
    return below | tree


def _search() -> tuple[Path, ...]:
    return layers.search_path(())


def _file(group: str, option: str) -> Path:
    file = layers.find(f"{group}/{option}", _search())
    assert file is not None, f"{group}/{option}"
    return file


def _sentence(file: Path) -> str:
    """The first comment of a file that is not Hydra's."""
    comments = (
        line[1:].strip() for line in file.read_text("utf-8").splitlines() if line[:1] == "#"
    )
    return next(line for line in comments if not line.startswith("@package"))


def _yaml(file: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    return loaded


PAGES: Mapping[str, Callable[[], Iterator[str]]] = {
    "flags.md": flags_page,
    "llama-server.md": llama_server_page,
    "routes.md": routes_page,
    "settings.md": settings_page,
    "config.md": config_page,
    **{name: partial(route_page, file) for name, file in route_pages().items()},
}


def rendered(name: str) -> str:
    return "\n".join(PAGES[name]()) + "\n"


def main() -> int:
    REFERENCE.mkdir(exist_ok=True)
    for name in PAGES:
        (REFERENCE / name).write_text(rendered(name), "utf-8")
        print(f"wrote docs/{REFERENCE.name}/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
