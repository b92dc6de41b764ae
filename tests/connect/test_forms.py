"""Edits of JSON with comments, TOML and YAML: what is wanted is there, the rest as it was."""

import json
import re
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.connect import json_text, toml_text, yaml_text
from mlxcel.connect.merge import Clash, merge

WANTED = {"env": {"A": "1", "B": "2"}, "list": [{"name": "n", "v": True}]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("{}", '{\n  "env": {\n    "A": 1\n  }\n}', id="empty"),
        pytest.param('{"a": 1}', '{"a": 1, "env": {"A": 1}}', id="one-line"),
        pytest.param(
            '{\n\t"a": 1 // c\n}\n', '{\n\t"a": 1, // c\n\t"env": {\n\t\t"A": 1\n\t}\n}\n', id="tab"
        ),
        pytest.param(
            '{\n  "a": 1 /* x, y */ , // c, d\n}\n',
            '{\n  "a": 1 /* x, y */ , // c, d\n  "env": {\n    "A": 1\n  },\n}\n',
            id="comma-at-the-end",
        ),
        pytest.param(
            '{\n  "env": {\n    "A": 2, // old\n    // last\n  }\n}',
            '{\n  "env": {\n    "A": 1, // old\n    // last\n  }\n}',
            id="only-the-value",
        ),
        pytest.param('{"env": {"A": true}}', '{"env": {"A": 1}}', id="true-is-not-1"),
        pytest.param('{"env": null}', '{"env": {\n  "A": 1\n}}', id="null"),
        pytest.param('{"env": {"A": 3}, "env": {"A": 1}}', None, id="the-last-of-two"),
        pytest.param('{"u//rl": "http://x/*", "env": {"A": 1}}', None, id="no-comment"),
        pytest.param(
            '{\r\n  "a": 1\r\n}',
            '{\r\n  "a": 1,\r\n  "env": {\r\n    "A": 1\r\n  }\r\n}',
            id="crlf",
        ),
        pytest.param("// mine\n", '// mine\n{\n  "env": {\n    "A": 1\n  }\n}\n', id="comment"),
    ],
)
def test_json(before: str, after: str | None) -> None:
    assert json_text.edit(before, {"env": {"A": 1}}) == (before if after is None else after)


@pytest.mark.parametrize(
    "text", ['{"a" 1}', "{,}", '{"a": 1 "b": 2}', '{"a": tru}', "{", '"', "{}}", "{1: 2}"]
)
def test_what_is_not_json(text: str) -> None:
    with pytest.raises(ValueError, match="line 1 is not JSON"):
        json_text.edit(text, WANTED)


SCALARS = st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["", "//", "/*", ',"}'])
KEYS = st.sampled_from(["env", "list", "A", "name", "é", "x//"])
VALUES = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=3)
)
GAPS = st.sampled_from(["", " ", "\n", "\n  ", "\t", "// c, }\n", "/* , { */", ' // "\n\n  '])


@st.composite
def texts(draw: Any) -> str:
    """An object, written with space, comments and trailing commas wherever they may be."""

    def write(value: Any) -> str:
        if not isinstance(value, list | dict):
            return json.dumps(value, ensure_ascii=False)
        opening, closing = "[]" if isinstance(value, list) else "{}"
        parts = [
            f"{json.dumps(part, ensure_ascii=False)}{gap()}:{gap()}{write(value[part])}"
            if isinstance(value, dict)
            else write(part)
            for part in value
        ]
        comma = "," if parts and draw(st.booleans()) else ""
        return opening + ",".join(gap() + part + gap() for part in parts) + comma + gap() + closing

    def gap() -> str:
        return str(draw(GAPS))

    return gap() + write(draw(st.dictionaries(KEYS, VALUES, max_size=4))) + gap()


def comments(text: str) -> list[str]:
    """In order, those in texts left out."""
    found = re.findall(r'"(?:[^"\\]|\\.)*"|(//[^\n]*|/\*.*?\*/)', text)
    return [comment for comment in found if comment]


@given(texts())
def test_an_edit_of_json_merges_and_keeps_every_comment(text: str) -> None:
    merged = deepcopy(json_text.read(text))
    try:
        merge(merged, WANTED)
    except Clash:
        with pytest.raises(Clash):
            json_text.edit(text, WANTED)
        return
    after = json_text.edit(text, WANTED)
    assert json_text.read(after) == merged
    assert comments(after) == comments(text)
    assert json_text.edit(after, WANTED) == after


def test_toml_keeps_order_and_puts_keys_before_tables() -> None:
    text = '# top\nz = 1\n\n[a]\nb = 1 # c\n\n[p.other]\nk = "v"\n'
    after = toml_text.edit(text, {"model": "m", "p": {"ours": {"k": "w", "gone": None}}})
    assert after.startswith('# top\nz = 1\nmodel = "m"\n\n[a]\nb = 1 # c\n')
    assert toml_text.read(after)["p"] == {"other": {"k": "v"}, "ours": {"k": "w"}}
    assert toml_text.edit(after, {"p": {"ours": {"k": None}}}).count("k = ") == 1


def test_what_is_not_toml() -> None:
    with pytest.raises(ValueError, match=r"it is not TOML: .*line 2"):
        toml_text.edit("a = 1\nb = \n", {})


@pytest.mark.parametrize(
    "head",
    [
        pytest.param("a: 'x' # c\nlist:\n- name: o\n  m:\n    k: on\n", id="flat"),
        pytest.param("list:\n    # c\n    - name: o\n      m:\n          k: 1\n", id="four"),
        pytest.param("---\na: &x {k: [1, 2]}\nb: *x\nlist:\n  - name: o\n", id="anchors"),
    ],
)
def test_yaml_keeps_what_is_there(head: str) -> None:
    assert yaml_text.edit(head, {"list": [{"name": "n"}]}) == (
        head + re.search(r"^( *)- ", head, re.MULTILINE)[1] + "- name: n\n"  # type: ignore[index]
    )


def test_yaml_of_comments_alone_keeps_them() -> None:
    assert yaml_text.edit("# a\n\n#b: 1\n", {"c": 1}) == "# a\n\n#b: 1\nc: 1\n"


@pytest.mark.parametrize("text", ["a: [", "- a", "a: 1\na: 2\n", "a: 1\n---\nb: 1\n"])
def test_what_is_no_yaml_mapping(text: str) -> None:
    with pytest.raises(ValueError, match="YAML"):
        yaml_text.edit(text, {"c": 1})
