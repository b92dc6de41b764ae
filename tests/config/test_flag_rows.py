"""The real flag table, row by row: each spelling and variable does what its row says."""

import re
from collections.abc import Mapping
from pathlib import Path

from mlxcel.config.flag_table import Row, load_table
from mlxcel.config.flags import Invocation
from mlxcel.config.paths import data_dir
from mlxcel.config.schema import additive, every_key, secrets
from tests.config.reading import parsed, problems, values
from tests.rows import every

REAL = load_table()
ROWS = [row for rows in REAL.sections.values() for row in rows]
KEYED = [row for row in ROWS if row.key]
LEAVES = [row for row in KEYED if not row.key.startswith("@")]

SAMPLES: Mapping[str, tuple[str, object]] = {
    "int": ("17", 17),
    "float": ("0.5", 0.5),
    "str": ("word", "word"),
    "word": ("word", "word"),
    "list": ("b, a", ["b", "a"]),
    "texts": ("b, a", ["b, a"]),
    "text": (r"a\n", "a\n"),
    "size": ("2G", 2 << 30),
    "bias": ("5-inf,6+1", [[5, "-inf"], [6, 1.0]]),
    "languages": ("ja=-5,zh=-inf", [["ja", -5.0], ["zh", "-inf"]]),
    "loop": ("1,20,4", {"max_pattern_size": 20, "min_pattern_size": 1, "min_count": 4}),
    "adapters": ("a,b", [{"path": "a", "scale": 1.0}, {"path": "b", "scale": 1.0}]),
    "scaled-adapters": ("a:0.5,b:2", [{"path": "a", "scale": 0.5}, {"path": "b", "scale": 2.0}]),
    "json": ('{"a": 1}', {"a": 1}),
    "secret": ("s3cret", "s3cret"),
}


def sample(row: Row, folder: Path) -> tuple[str, object]:
    if row.type == "content":
        file = folder / "file"
        file.write_text("root")
        return str(file), "root"
    if row.type == "file":
        file = folder / "file"
        file.write_text("a-key")
        return str(file), [str(file)] if row.many else str(file)
    text, value = SAMPLES[row.type]
    if row.allowed:
        text = row.allowed[0]
        value = row.words[text] if text in row.words else row.map.get(text, text)
    if "*" in row.map:
        value = row.map["*"]
    if row.scale and isinstance(value, float):
        value = int(value * row.scale)
    return text, [value] if row.many else value


@every("row", KEYED, ids=lambda row: row.primary("mlxcel"))
def test_every_spelling_of_a_row_reaches_its_key(row: Row, tmp_path: Path) -> None:
    for flag in row.flags:
        if row.takes_value:
            text, value = sample(row, tmp_path)
            assert said(row, parsed(flag, text)) == {row.key: value}
            assert said(row, parsed(f"{flag}={text}")) == {row.key: value}
        else:
            assert said(row, parsed(flag)) == switched(row, row.const)
    for flag in row.negated:
        assert said(row, parsed(flag)) == {row.key: row.map.get(False, False)}


def said(row: Row, invocation: Invocation) -> dict[str, object]:
    """What the row has set; the choice of a group is `@group`."""
    if not (row.key or "").startswith("@"):
        return values(invocation)
    return {f"@{group}": option for group, option in invocation.asked.choices}


def switched(row: Row, value: object) -> dict[str, object]:
    """A switch whose `const` is null asks for nothing."""
    return {} if value is None else {row.key: value}


@every("row", KEYED, ids=lambda row: row.primary("mlxcel"))
def test_every_variable_of_a_row_reaches_its_key(row: Row, tmp_path: Path) -> None:
    text, value = ("1", row.const) if not row.takes_value else sample(row, tmp_path)
    value = row.map.get(True, value) if row.type == "flag" else value
    value = False if row.type == "no-flag" else value
    for variable in row.env:
        name, _, only = variable.partition("=")
        assert said(row, parsed(**{name: only or text})) == switched(row, value)


def test_every_key_of_the_table_is_in_the_schema() -> None:
    assert {row.key for row in LEAVES} <= every_key()


def test_a_row_of_a_group_chooses_what_there_is() -> None:
    for row in KEYED:
        if row.key.startswith("@"):
            options = {path.stem for path in (data_dir("conf") / row.key[1:]).glob("*.yaml")}
            words = row.allowed if row.takes_value else (row.const,)
            assert {row.map.get(word, word) for word in words} <= options


def test_the_table_agrees_with_the_schema_on_secrets_and_lists_that_add_up() -> None:
    assert {row.key for row in KEYED if row.type == "secret"} == secrets()
    assert {row.key for row in KEYED if row.adds} == additive()


def test_no_spelling_and_no_variable_stands_in_two_rows() -> None:
    for command in REAL.commands:
        own = {flag for row in REAL.rows(command) if row.command for flag in row.flags}
        general = [row for row in ROWS if not row.command]
        spelled = [flag for row in general for flag in (*row.flags, *row.negated)]
        assert len(spelled) == len(set(spelled))
        assert own <= {*spelled, *own}
    variables = [name for row in KEYED for name in row.env]
    assert len(variables) == len(set(variables))


@every("row", ROWS, ids=lambda row: row.primary("mlxcel"))
def test_every_row_explains_itself(row: Row) -> None:
    assert row.reason if row.type in ("inert", "refused") else row.help


@every(
    "row,flag",
    [(row, flag) for row in ROWS if row.type == "refused" for flag in row.flags],
    ids=lambda pair: pair[1],
)
def test_a_refused_flag_says_why(row: Row, flag: str) -> None:
    words = [flag, "value"] if row.takes else [flag]
    verdict = "is not supported" if row.takes and row.neutral else "cannot work here"
    assert problems(*words) == [(flag, f"{verdict}: {row.reason}", "")]


@every(
    "row,flag",
    [(row, flag) for row in ROWS if row.type == "inert" for flag in row.flags],
    ids=lambda pair: pair[1],
)
def test_an_inert_flag_changes_nothing(row: Row, flag: str) -> None:
    given = [re.split(r"\|", row.neutral)[0] or "4"] * row.count if row.takes else []
    words = [flag, *given]
    assert parsed(*words) == parsed()
