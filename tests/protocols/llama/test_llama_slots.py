"""The slot actions as they are written, and their errors."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxcel.core.errors import BadRequest, ErrorInfo
from mlxcel.core.ports import SlotFile
from mlxcel.protocols.llama.errors import error_body
from mlxcel.protocols.llama.slots import (
    SlotAction,
    erased_body,
    read_action,
    read_filename,
    read_slot,
    restored_body,
    saved_body,
)

FILE = SlotFile(tokens=128, size_bytes=640, took_ms=1.7)


@pytest.mark.parametrize(
    ("text", "slot"),
    [("0", 0), ("3", 3), ("2x", 2), ("2.9", 2), ("007", 7), ("0" * 5000 + "1", 1), ("1 2", 1)],
    ids=["zero", "plain", "letters", "fraction", "zeros", "many-zeros", "space"],
)
def test_leading_digits_are_the_id(text: str, slot: int) -> None:
    assert read_slot(text, 8) == slot


@pytest.mark.parametrize("text", ["", "x", "-1", "+1", "x2", " 1", "8", "9" * 5000, "٣"])
def test_what_is_no_id_of_a_slot(text: str) -> None:
    with pytest.raises(BadRequest, match=r"^Invalid slot ID$"):
        read_slot(text, 8)


@given(st.text(), st.integers(1, 100))
def test_an_id_is_one_of_the_slots_or_refused(text: str, slots: int) -> None:
    with contextlib.suppress(BadRequest):
        assert 0 <= read_slot(text, slots) < slots


@pytest.mark.parametrize("action", list(SlotAction))
def test_actions(action: SlotAction) -> None:
    assert read_action(action.value) is action


@pytest.mark.parametrize("word", [None, "", "SAVE", "delete", "save "])
def test_other_actions(word: str | None) -> None:
    with pytest.raises(BadRequest, match=r"^Invalid action$"):
        read_action(word)


def test_a_file_name_is_read_whatever_else_is_there() -> None:
    assert read_filename(b'{"x": 1, "filename": "a.bin"}') == "a.bin"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"filename": null}',
        b'{"filename": 7}',
        b'{"filename": ["a"]}',
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"filename": "' + b"a" * 70_000 + b'"}',
    ],
    ids=lambda body: body[:20].decode("latin-1"),
)
def test_a_body_without_a_file_name(body: bytes) -> None:
    with pytest.raises(BadRequest, match=r"^Invalid filename$"):
        read_filename(body)


def test_bodies_are_those_of_the_interface() -> None:
    saved = {"id_slot": 1, "filename": "chat-a.bin", "n_saved": 128, "n_written": 640}
    read = {"id_slot": 1, "filename": "chat-a.bin", "n_restored": 128, "n_read": 640}
    assert json.dumps(saved_body(1, "chat-a.bin", FILE)) == json.dumps(
        saved | {"timings": {"save_ms": 1.7}}
    )
    assert json.dumps(restored_body(1, "chat-a.bin", FILE)) == json.dumps(
        read | {"timings": {"restore_ms": 1.7}}
    )
    assert erased_body(0, 120) == {"id_slot": 0, "n_erased": 120}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (500, "server_error"),
        (501, "not_supported_error"),
        (503, "unavailable_error"),
        (504, "server_error"),
    ],
)
def test_errors_carry_their_status_as_code(status: int, kind: str) -> None:
    error = ErrorInfo(code="whatever", status=status, message="why", param="field")
    assert error_body(error) == {"error": {"code": status, "message": "why", "type": kind}}
