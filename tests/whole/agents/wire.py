"""What of the bytes on the wire is another each time: ids, hours, how a text was cut. All else
stays as it came."""

import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

ID = re.compile(
    r"(?<![0-9a-z_])(chatcmpl-|resp_|msg_|rs_|fc_|call_|toolu_)"
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{24}|[0-9a-f]{16})(?![0-9a-z-])"
)
HOUR = re.compile(r'"(created|created_at|completed_at)":(\d+)')
SPAN = re.compile(r'"(\w+_ms|\w+_per_second)":[\d.e+-]+')
SEQUENCE = re.compile(r'"sequence_number":(\d+)')
SUMMARY = "response.reasoning_summary_text.delta"
"""It tells each piece of a thought again."""
DELTAS = (SUMMARY, "response.reasoning_text.delta", "response.output_text.delta")
Run = dict[str, list[dict[str, str]]]
"""Frames without their pieces of text, and the pieces of each."""
TEXTS = ("content", "reasoning_content", "reasoning", "text", "thinking")


class Stable:
    """Of one conversation: an id is the same wherever it stands, in requests and in answers."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def request(self, body: Any) -> str:
        return self._named(json.dumps(body, indent=1, ensure_ascii=False)) + "\n"

    def answer(self, raw: bytes) -> str:
        text = raw.decode()
        hours = [int(hour) for _, hour in HOUR.findall(text)]
        assert max(hours, default=0) - min(hours, default=0) <= 5, hours
        text = HOUR.sub(r'"\1":0', text)
        return self._named(SPAN.sub(r'"\1":0', text))

    def stream(self, raw: bytes) -> str:
        frames = raw.decode().split("\n\n")
        assert frames.pop() == "", "it ends with a whole frame"
        return self.answer("".join(f"{frame}\n\n" for frame in _joined(frames)).encode())

    def _named(self, text: str) -> str:
        return ID.sub(self._name, text)

    def _name(self, found: re.Match[str]) -> str:
        if found[0] not in self._known:
            self._counts[found[1]] = count = self._counts.get(found[1], 0) + 1
            self._known[found[0]] = f"{found[1]}{count}"
        return self._known[found[0]]


def _joined(frames: list[str]) -> Iterator[str]:
    """Neighbours that are pieces of one text as one frame: how many a text comes in depends on
    how fast it is read."""
    numbers = [int(number) for number in SEQUENCE.findall("\n".join(frames))]
    assert numbers == [*range(len(numbers))], numbers
    count = 0
    for run in _runs(frames):
        # What is told in two ways is told piece by piece in both.
        told = [[[*piece.values()] for piece in pieces] for pieces in run.values()]
        assert all(each == told[0] for each in told), told
        for shape, pieces in run.items():
            yield SEQUENCE.sub(f'"sequence_number":{count}', _filled(shape, pieces), count=1)
            count += 1


def _runs(frames: list[str]) -> Iterator[Run]:
    run: Run = {}
    for frame in frames:
        shape, pieces = _taken_apart(frame)
        goes_on = pieces and (shape in run or (run and SUMMARY in shape and len(run) == 1))
        if not goes_on:
            yield from [run] if run else []
            run = {}
        run.setdefault(shape, []).append(pieces)
    yield from [run] if run else []


def _taken_apart(frame: str) -> tuple[str, dict[str, str]]:
    """A frame without its pieces of text, and these."""
    data = frame.partition("data: ")[2]
    pieces = _pieces(json.loads(data)) if data.startswith("{") else {}
    if not pieces:
        return frame, {}
    for key, piece in pieces.items():
        assert piece, frame
        written = f'"{key}":{orjson.dumps(piece).decode()}'
        assert frame.count(written) == 1, frame
        frame = frame.replace(written, f'"{key}":{{}}')
    return SEQUENCE.sub('"sequence_number":0', frame), pieces


def _pieces(data: Any) -> dict[str, str]:
    if data.get("type") in DELTAS:
        return {"delta": data["delta"]}
    choices = data.get("choices")
    delta = choices[0]["delta"] if choices else data.get("delta")
    found = delta if isinstance(delta, dict) else {}
    return {key: found[key] for key in TEXTS if isinstance(found.get(key), str)}


def _filled(shape: str, pieces: list[dict[str, str]]) -> str:
    for key in pieces[0]:
        text = "".join(piece[key] for piece in pieces)
        shape = shape.replace(f'"{key}":{{}}', f'"{key}":{orjson.dumps(text).decode()}')
    return shape
