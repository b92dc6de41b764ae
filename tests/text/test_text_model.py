import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mlxcel.core.byte_vocab import END, EOS
from mlxcel.core.errors import StartupError
from mlxcel.text.tokenizer import byte_text_model, read_text_model
from tests.tiny.checkpoint import build_tiny_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_tiny_checkpoint(tmp_path / "tiny", layers=1, hidden=16)


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text()) if path.exists() else {}
    change(value)
    path.write_text(json.dumps(value))


def test_reads_the_tiny_checkpoint(folder: Path) -> None:
    text = read_text_model(folder)
    assert text.encode("hi<|end|>") == [104, 105, END]
    assert text.special_tokens == {"bos_token": "<|bos|>", "eos_token": "<|eos|>"}
    assert text.eos_ids == (EOS, END)
    assert text.chat_template is not None


def test_generation_config_beats_config_and_joins_the_tokenizers_eos(folder: Path) -> None:
    rewrite(folder / "generation_config.json", lambda c: c.update(eos_token_id=7))
    assert read_text_model(folder).eos_ids == (7, EOS)


def test_template_file_beats_the_one_in_the_config(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("from the file")
    assert read_text_model(folder).chat_template == "from the file"


def test_default_of_several_named_templates_is_taken(folder: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    rewrite(folder / "tokenizer_config.json", lambda c: c.update(chat_template=named))
    assert read_text_model(folder).chat_template == "d"


def test_special_token_may_be_an_object_in_the_map_file(folder: Path) -> None:
    rewrite(folder / "tokenizer_config.json", lambda c: c.pop("eos_token"))
    rewrite(
        folder / "special_tokens_map.json", lambda c: c.update(eos_token={"content": "<|end|>"})
    )
    text = read_text_model(folder)
    assert text.special_tokens["eos_token"] == "<|end|>"


def test_truncation_of_the_file_is_switched_off(folder: Path) -> None:
    def cut(config: dict[str, Any]) -> None:
        config["truncation"] = {
            "direction": "Right",
            "max_length": 2,
            "strategy": "LongestFirst",
            "stride": 0,
        }

    rewrite(folder / "tokenizer.json", cut)
    assert len(read_text_model(folder).encode("abcdef")) == 6


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param(
            "config.json",
            {"eos_token_id": "x"},
            r"config.json: eos_token_id must be an integer .*'x'",
            id="eos",
        ),
        pytest.param(
            "generation_config.json",
            {"eos_token_id": [1, {}]},
            r"generation_config.json: eos_token_id must be an integer",
            id="eos-list",
        ),
        pytest.param(
            "config.json",
            {"eos_token_id": None, "text_config": {"eos_token_id": True}},
            r"config.json: text_config.eos_token_id must be an integer",
            id="nested-eos",
        ),
        pytest.param(
            "tokenizer_config.json",
            {"chat_template": [{"x": 1}]},
            r"tokenizer_config.json: chat_template must be a string or a list",
            id="template-rows",
        ),
        pytest.param(
            "tokenizer_config.json",
            {"chat_template": [{"name": "default", "template": 7}]},
            r"tokenizer_config.json: chat_template must be",
            id="template-in-row",
        ),
        pytest.param(
            "tokenizer_config.json",
            {"chat_template": {}},
            r"tokenizer_config.json: chat_template must be",
            id="template",
        ),
    ],
)
def test_value_that_cannot_be_used_is_named(
    folder: Path, name: str, content: dict[str, Any], message: str
) -> None:
    rewrite(folder / name, lambda c: c.update(content))
    with pytest.raises(StartupError, match=message):
        read_text_model(folder)


@pytest.mark.parametrize(
    "name", ["chat_template.jinja", "tokenizer_config.json", "generation_config.json"]
)
def test_file_that_is_no_utf8_is_named(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"\xff\xfe")
    with pytest.raises(StartupError, match=f"{name} cannot be read as UTF-8 text"):
        read_text_model(folder)


def test_text_config_that_is_no_object_states_nothing(folder: Path) -> None:
    rewrite(folder / "config.json", lambda c: c.update(eos_token_id=None, text_config=[1]))
    assert read_text_model(folder).eos_ids == (EOS,)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("tokenizer.json", None, r"tokenizer.json is missing", id="missing"),
        pytest.param("tokenizer.json", '{"version"', r"cannot be used", id="truncated"),
        pytest.param("tokenizer_config.json", "{", r"config.json is not valid JSON", id="not-json"),
        pytest.param("config.json", "[]", r"config.json must hold a JSON object", id="not-object"),
    ],
)
def test_broken_file_is_named(folder: Path, name: str, content: str | None, message: str) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(StartupError, match=message):
        read_text_model(folder)


def test_placeholders_of_media_are_read_under_both_names(folder: Path) -> None:
    rewrite(
        folder / "config.json",
        lambda config: config.update(
            image_token_id=7, video_token_index=9, audio_token_id=None, image_token_index="x"
        ),
    )
    assert read_text_model(folder).placeholder_ids == (7, 9)


@pytest.mark.parametrize("work", ["encode", "encode_marked", "decode"])
def test_others_run_while_a_long_text_is_read(work: str) -> None:
    """On the event loop they are everybody else."""
    model = byte_text_model()
    text = "a" * 300_000
    told: str | list[int] = text if work != "decode" else model.encode(text) * 3
    thread = Thread(target=getattr(model, work), args=(told,))
    began_s = before_s = time.perf_counter()
    longest_s = 0.0
    thread.start()
    while thread.is_alive():
        time.sleep(0.001)
        now_s = time.perf_counter()
        longest_s, before_s = max(longest_s, now_s - before_s), now_s
    assert longest_s < 0.6 * (before_s - began_s)
