"""schemathesis against a running server and its own /openapi.json: all checks, 50 examples for each
operation, a fixed seed.

The program is served as a whole, with everything on that there is. What is expected
beyond the defaults of the checks stands in `schemathesis.toml`, with the reasons.
"""

import json
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.program import Program, serve_checkpoint

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
KEY = {"Authorization": "Bearer k"}
MARKERS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
GENERATING = (
    "chat_completions|completions|chat_input_tokens|apply_template|completion"
    "|messages|messages_count_tokens"
    "|responses|responses_compact|responses_input_tokens"
)
ALIAS = r"_[0-9]+$"
"""The same handler under another path, as test_openapi.py makes sure."""
PARTS = {
    "generating": ("--include-operation-id-regex", f"^({GENERATING})$"),
    "others": ("--exclude-operation-id-regex", f"^({GENERATING})$|{ALIAS}"),
}
"""Answers are told fast by the echo; infills and saved conversations need a model."""
NEVER = {
    *("refused", "stream_read", "conv_kv_save", "conv_kv_load"),
    *("response_show", "response_cancel", "response_input_items", "responses_socket"),
}
"""Operations that cannot succeed: never served, or of a name that nobody can guess."""


def served(folder: Path, part: str) -> Program:
    options = (
        "server.api_keys=[k]",
        "cache=conversations",
        f"cache.conversations.disk_dir={folder / 'conversations'}",
        f"cache.prefix_dir={folder / 'prefix'}",
        f"cache.slot_save_path={folder / 'slots'}",
        "live.sampling.max_tokens=8",
        *(f"routes.{name}=true" for name in ("settings", "metrics", "props", "slots_debug")),
    )
    if part == "generating":
        return Program("model=echo", *options)
    checkpoint = build_tiny_checkpoint(folder / "tiny", markers=MARKERS, window=128)
    return Program(*serve_checkpoint(checkpoint, *options))


def document(program: Program) -> dict[str, Any]:
    request = urllib.request.Request(f"{program.url}/openapi.json", headers=KEY)
    with urllib.request.urlopen(request, timeout=30) as reply:
        shown: dict[str, Any] = json.load(reply)
    return shown


def without_rules(shown: dict[str, Any]) -> dict[str, Any]:
    """Rules between fields multiply to more branches than the generator takes; test_wire.py holds
    them against the codecs."""
    for schema in shown["components"]["schemas"].values():
        if schema.get("type") == "object":
            schema.pop("allOf", None)
    return shown


def succeeded(report: Path, shown: dict[str, Any]) -> Counter[str]:
    """How often each operation has answered with 2xx."""
    templates = [
        (re.compile(re.sub(r"\\\{\w+\\\}", ".+", re.escape(path))), item)
        for path, item in sorted(shown["paths"].items(), key=lambda pair: "{" in pair[0])
    ]
    found: Counter[str] = Counter()
    for entry in json.loads(report.read_text("utf-8"))["log"]["entries"]:
        path, method = urlsplit(entry["request"]["url"]).path, entry["request"]["method"].lower()
        item = next((item for pattern, item in templates if pattern.fullmatch(path)), {})
        if method in item and 200 <= entry["response"]["status"] < 300:
            found[item[method]["operationId"]] += 1
    return found


@pytest.mark.parametrize("part", PARTS)
def test_the_server_does_what_its_document_says(part: str, tmp_path: Path) -> None:
    file, report = tmp_path / "openapi.json", tmp_path / "report.har"
    with served(tmp_path, part) as program:
        shown = without_rules(document(program))
        file.write_text(json.dumps(shown), "utf-8")
        st = Path(sys.executable).with_name("st")
        said = subprocess.run(
            [
                *(st, "--config-file", HERE / "schemathesis.toml", "run", file),
                *("--url", program.url, "--checks", "all", "--no-color"),
                *("--report-har-path", report, *PARTS[part]),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=540,
        )
        assert said.returncode == 0, said.stdout[-20_000:] + said.stderr[-2000:]
        assert program.health()["status"] == "ok"
    assert "Traceback" not in program.text
    counts = succeeded(report, shown)
    asked = {
        operation["operationId"]: operation
        for item in shown["paths"].values()
        for operation in item.values()
    }
    selected = [
        name
        for name in asked
        if not re.search(ALIAS, name)
        and bool(re.fullmatch(GENERATING, name)) == (part == "generating")
    ]
    rarely = {name: counts[name] for name in selected if counts[name] < 3}
    assert not {name for name in rarely if not name.startswith(tuple(NEVER))}, rarely
