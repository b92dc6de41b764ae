"""Servers of the fault cases, and what every case requires when it is over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases.asking import assert_serves
from tests.tiny.checkpoint import build_tiny_checkpoint
from tests.whole.conftest import echo, tiny_server
from tests.whole.program import Program, serve_checkpoint

__all__ = ["echo", "tiny_server"]

MARKERS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")

STRICT_ROLES = """\
{%- for message in messages -%}
{%- if message.role not in ("system", "user", "assistant") -%}
{{ raise_exception("roles are system, user and assistant, not " ~ message.role) }}
{%- endif -%}
<|{{ message.role }}|>{{ message.content }}<|end|>
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""
"""Knows the three oldest roles and refuses all others."""

SYSTEM_FIRST = """\
{%- for message in messages -%}
{%- if message.role == "system" and not loop.first -%}
{{ raise_exception("System message must be at the beginning.") }}
{%- endif -%}
<|{{ message.role }}|>{{ message.content }}<|end|>
{%- endfor -%}
{%- set last = messages[-1].content -%}
{%- if last == "divide" %}{{ 1 / 0 }}{% endif -%}
{%- if last == "undefined" %}{{ nothing.at.all }}{% endif -%}
{%- if last == "key" %}{{ {}["missing"]["deeper"] }}{% endif -%}
{%- if last == "type" %}{{ "a" + 1 }}{% endif -%}
{%- if last == "range" %}{{ range(10 ** 9) | list }}{% endif -%}
{%- if last == "unsafe" %}{{ messages.__class__.__mro__ }}{% endif -%}
{%- if last == "recursion" -%}
{%- macro down() %}{{ down() }}{% endmacro -%}{{ down() }}
{%- endif -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""
"""Insists on system first, and breaks in every way a template can when it is asked to."""


@pytest.fixture(autouse=True)
def _next_plain_request_succeeds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Closes every case: each server it talked to answers the next plain request in 2 s.

    So the servers of the cases live longer than one test (session or module scope).
    """
    yield
    used = [value for value in request.node.funcargs.values() if isinstance(value, Program)]
    assert used, "a case talks to a server that a fixture of the test gives it"
    for program in used:
        assert_serves(program)


@pytest.fixture(scope="session")
def long_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a window that no test fills, and markers to fill gaps by."""
    path = tmp_path_factory.mktemp("long") / "tiny-long"
    return build_tiny_checkpoint(path, window=32768, markers=MARKERS)


@pytest.fixture(scope="session")
def long_tiny(long_folder: Path) -> Iterator[Program]:
    """The real engine with room for answers that take much longer than a test."""
    with Program(*serve_checkpoint(long_folder)) as program:
        yield program


def template_words(folder: Path, source: str) -> str:
    """The configuration word that serves with this chat template."""
    path = folder / "template.jinja"
    path.write_text(source, encoding="utf-8")
    return f"generation.chat_template.file={path}"
