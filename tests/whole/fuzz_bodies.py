"""Hostile bodies behind a head that is as it should be."""

import copy
import gzip
import json
import zlib
from random import Random
from typing import Any

from tests.whole.fuzz_attacks import Attack, attack, kind
from tests.whole.fuzz_targets import JSON, Target, head, with_body

Place = tuple[str | int, ...]
MARK = "@@HERE@@"
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 2**64 - 1, 0.5, -0.0, 1e308, 1e-320),
    *(
        "",
        " ",
        "x",
        "\x00",
        "9" * 40,
        "NaN",
        "\u202e\ufeff",
        "é" * 9,
        "../../etc/passwd",
        "a\r\nb: c",
    ),
    *([], [[]], [None], [0] * 50, [{}], {}, {"": ""}, {"a": {"b": []}}, [[["x"]], 1, {"y": None}]),
)
NUMBERS = (
    *(
        "1e400",
        "-1e400",
        "1" + "0" * 400,
        "-" + "9" * 5000,
        "-0",
        "-0.0",
        "0e0",
        "1e-400",
        "1E+9999",
    ),
    *("NaN", "Infinity", "-Infinity", "nan", "0x10", "01", "+1", "1.", ".5", "1e", "--1", "1_000"),
    *("9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616"),
    *("-9223372036854775809", "4294967296", "2147483648", "0.1e1", "3.0", "1e2", "1e308", "5e-324"),
)
BROKEN_TEXT = (
    *(
        rb"\ud800",
        rb"\udfff",
        rb"\udc80x",
        rb"\ud83d",
        rb"\ude00\ud83d",
        rb"a\ud800\u0041",
        rb"\uD8",
    ),
    *(
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf8\x88\x80\x80\x80",
        b"\x80",
    ),
    *(
        b"\xff\xfe",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\xef\xbb\xbf",
        b"\xf0\x9f\x98\x80",
    ),
)
DEPTHS = (30, 200, 500, 900, 990, 1000, 1022, 1023, 1024, 1025, 1100, 5_000, 20_000, 100_000)


def places(value: Any, at: Place = ()) -> list[Place]:
    """Of everything in a body, itself included."""
    found = [at]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*at, index))
    return found


def a_place(rng: Random, target: Target, body: Any) -> Place:
    """Somewhere in the body, or a field that it could have as well."""
    if target.fields and isinstance(body, dict) and rng.random() < 0.6:
        return (rng.choice(target.fields),)
    return rng.choice(places(body))


def put(body: Any, place: Place, value: Any) -> Any:
    if not place:
        return value
    body = copy.deepcopy(body)
    inner = body
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    return body


def spliced(rng: Random, target: Target, text: bytes) -> bytes:
    """The body with raw bytes in place of one of its values."""
    place = a_place(rng, target, target.body)
    return json.dumps(put(target.body, place, MARK)).encode().replace(f'"{MARK}"'.encode(), text)


def plain(target: Target, body: bytes, *headers: tuple[str, str | bytes], **how: Any) -> Attack:
    return attack(target, with_body(target, body, *headers), is_plain=True, **how)


@kind
def intact(rng: Random, target: Target) -> Attack:
    body = target.body
    if target.generates and rng.random() < 0.5:
        body = body | {"stream": True}
    return plain(target, json.dumps(body).encode())


@kind
def body_bytes(rng: Random, target: Target) -> Attack:
    return plain(target, rng.randbytes(rng.choice((0, 1, 2, 7, 100, 5000))))


@kind
def truncated_json(rng: Random, target: Target) -> Attack:
    whole = json.dumps(target.body).encode()
    return plain(target, whole[: rng.randrange(len(whole))])


@kind
def mangled_json(rng: Random, target: Target) -> Attack:
    """A few bytes of it changed, left out or said twice."""
    body = bytearray(json.dumps(target.body).encode())
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(body)) if body else 0
        body[at : at + rng.randint(0, 3)] = rng.choice((b"", rng.randbytes(1), body[at : at + 9]))
    return plain(target, bytes(body))


@kind
def wrong_types(rng: Random, target: Target) -> Attack:
    body = target.body
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        body = put(body, a_place(rng, target, body), rng.choice(ODD))
    return plain(target, json.dumps(body).encode())


@kind
def deep_nesting(rng: Random, target: Target) -> Attack:
    depth = rng.choice(DEPTHS)
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"type":', b"}]")))
    deep = opened * depth + b"1" + (closed * depth if rng.random() < 0.8 else b"")
    return plain(target, spliced(rng, target, deep))


@kind
def odd_numbers(rng: Random, target: Target) -> Attack:
    return plain(target, spliced(rng, target, rng.choice(NUMBERS).encode()))


@kind
def broken_text(rng: Random, target: Target) -> Attack:
    text = rng.choice(BROKEN_TEXT) * rng.choice((1, 1, 3))
    around = rng.choice(
        (b'"%b"', b'"a%bz"', b'["%b"]', b'{"%b": "%b"}', b'[{"type": "%b"}]', b"%b")
    )
    return plain(target, spliced(rng, target, around.replace(b"%b", text)))


@kind
def null_bytes(rng: Random, target: Target) -> Attack:
    if rng.random() < 0.5:
        return plain(
            target, spliced(rng, target, b'"' + rng.choice((rb"\u0000", rb"a\u0000b")) + b'"')
        )
    body = bytearray(json.dumps(target.body).encode())
    at = rng.randrange(len(body) + 1)
    body[at:at] = b"\x00"
    return plain(target, bytes(body))


@kind
def keys_twice(rng: Random, target: Target) -> Attack:
    if not isinstance(target.body, dict) or not target.body:
        return plain(target, b'{"a": 1, "a": 2}')
    name = rng.choice(list(target.body))
    again = json.dumps({name: rng.choice((target.body[name], *ODD[:20]))}).encode()
    return plain(target, json.dumps(target.body).encode()[:-1] + b", " + again[1:])


@kind
def many_keys(rng: Random, target: Target) -> Attack:
    many = {f"k{n}": n for n in range(rng.choice((100, 3000)))}
    body = {**target.body, **many} if isinstance(target.body, dict) else [many]
    return plain(target, json.dumps(body).encode())


@kind
def huge_text(rng: Random, target: Target) -> Attack:
    # Of its tokens a text is all told, at a hundred times its size: no place to look for a leak.
    largest = 10_000 if target.handler.startswith("tokenizer.") else 300_000
    size = min(largest, rng.choice((3_000, 3_000, 30_000, 30_000, 120_000, 300_000)))
    text = rng.choice((b"a", b" ", b"\\n", b"\\u00e9", "é".encode(), b"[", b"ab ")) * (size // 3)
    return plain(target, spliced(rng, target, b'"' + text + b'"'))


@kind
def long_lists(rng: Random, target: Target) -> Attack:
    one = rng.choice((b"0", b"null", b'"a"', b"{}", b"[]", b'{"role": "user", "content": "a"}'))
    return plain(
        target, spliced(rng, target, b"[" + b",".join([one] * rng.choice((200, 9000))) + b"]")
    )


@kind
def media_types(rng: Random, target: Target) -> Attack:
    """The body is right; what the head says of it is not."""
    named = rng.choice(
        (
            *("text/plain", "", " ", ";", "application/json; charset=utf-16", "APPLICATION/JSON"),
            *("application/xml", "multipart/form-data", "multipart/form-data; boundary=", "a/b/c"),
            *("application/x-www-form-urlencoded", "x" * 3000, "application/json;" * 200, "é"),
            *("application/vnd.api+json", "application/+json", "*/*", '"; charset="'),
        )
    )
    body = json.dumps(target.body).encode()
    sent = (("Content-Type", named), ("Content-Length", str(len(body))))
    return attack(target, head(target, sent) + body, is_plain=True)


@kind
def codings(rng: Random, target: Target) -> Attack:
    body = json.dumps(target.body).encode()
    name, packed = rng.choice(
        (
            *(("gzip", gzip.compress(body)), ("deflate", zlib.compress(body)), ("identity", body)),
            *(("gzip", body), ("br", body), ("gzip", gzip.compress(body)[:-9]), ("x", body)),
        )
    )
    return plain(target, packed, ("Content-Encoding", name), ("Accept-Encoding", "gzip;q=x, *"))


@kind
def chunked(rng: Random, target: Target) -> Attack:
    """As it should be, in odd pieces."""
    body = json.dumps(target.body).encode()
    size = rng.choice((1, 3, 17, 1000))
    parts = [body[at : at + size] for at in range(0, len(body), size)][:400]
    sent = (("Content-Type", JSON), ("Transfer-Encoding", "chunked"))
    end = rng.choice((b"", b";a=b"))
    data = b"".join(b"%x%b\r\n%b\r\n" % (len(part), end, part) for part in parts)
    return attack(target, head(target, sent), data, b"0\r\n\r\n", is_plain=True)
