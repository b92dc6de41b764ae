"""Hostile heads, framings and sockets."""

import json
from dataclasses import replace
from random import Random

from tests.whole.fuzz_attacks import Attack, Ending, attack, kind
from tests.whole.fuzz_targets import JSON, Target, head, with_body

TYPE = ("Content-Type", JSON)
JUNK: tuple[bytes, ...] = (
    *(
        b"",
        b" ",
        b"\x00",
        b"a\x00b",
        b"\xff\xfe",
        "é".encode(),
        b"\xed\xa0\x80",
        b"x" * 300,
        b"x" * 2000,
    ),
    *(
        b"a\nX-Injected: 1",
        b"a\rX-Injected: 1",
        b"\n",
        b"\t",
        b"%0d%0aX: y",
        b"\x7f",
        b"\x1b[31m",
        b'"',
    ),
    *(
        b"-1",
        b"9" * 400,
        b"nan",
        b"null",
        b"{}",
        b"*",
        b"high",
        b"HIGH ",
        b"low,high",
        b"../../x",
        b"::",
    ),
    *(
        b"Bearer",
        b"Bearer ",
        b"Basic YTpi",
        b"http://evil.example",
        b"http://[::1",
        b"http://localhost:99999999",
    ),
)
NAMES = (
    *("X-Priority", "X-Request-Id", "Origin", "If-Match", "Authorization", "X-Api-Key", "Cookie"),
    *("Access-Control-Request-Headers", "Access-Control-Request-Method", "Accept", "Host", "Range"),
    *("X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Real-IP", "Connection", "Keep-Alive"),
    *("If-None-Match", "Accept-Encoding", "TE", "Trailer", "Upgrade", "X-Conversation-Id"),
)
METHODS = (
    *(
        "HEAD",
        "PUT",
        "TRACE",
        "PATCH",
        "DELETE",
        "OPTIONS",
        "CONNECT",
        "GET",
        "POST",
        "LINK",
        "M-SEARCH",
    ),
    *("get", "Post", "X" * 300, "GET\x00", "PRI", "!", "\u00e9"),
)
ENDS: tuple[bytes, ...] = (
    *(
        b"%00",
        b"/../../etc/passwd",
        b"//",
        b"/.",
        b"/%2e%2e/%2e%2e",
        b"%",
        b"%zz",
        b"%ff",
        b"\xff\xc3",
    ),
    *(
        "/é".encode(),
        b"/" + b"a" * 3000,
        b"/%" * 50,
        b";a=b",
        b"#part",
        b"\x00",
        b"\\..\\",
        b"/%2f%2f",
        b"%0d%0a",
    ),
)
QUERIES: tuple[bytes, ...] = (
    *(
        b"?",
        b"?a",
        b"?=",
        b"?&&&",
        b"?a=%00",
        b"?conv_id=%ff",
        b"?conv_id=%ed%a0%80&from=0",
        b"?\xff",
    ),
    *(
        b"?action=save",
        b"?action=restore",
        b"?action=erase",
        b"?action=%00",
        b"?action=save&action=x",
    ),
    *(b"?conv_id=fuzz&from=-1", b"?conv_id=fuzz&from=" + b"9" * 5000, b"?conv_id=fuzz&from=0x1"),
    *(
        b"?conv_id=" + b"a" * 3000,
        b"?conv_id=fuzz&from=1e9",
        b"?fail_on_no_slot=1",
        b"?" + b"a=b&" * 900,
    ),
    *(
        b"?conv_id=a%0d%0ab",
        b"?" + b"%41" * 900,
        b"?a[]=1&a[b]=2",
        "?é=ü".encode(),
        b"?conv_id=fuzz",
    ),
)


def body_of(target: Target, **more: object) -> bytes:
    body = {**target.body, **more} if isinstance(target.body, dict) else target.body
    return json.dumps(body).encode()


def streamed(target: Target, tokens: int = 40) -> bytes:
    """A body whose answer takes a while, where the route has such answers."""
    if not target.generates:
        return body_of(target)
    return body_of(target, stream=True, max_tokens=tokens, n_predict=tokens)


@kind
def line_bytes(rng: Random, target: Target) -> Attack:
    line = rng.choice(
        (
            *(rng.randbytes(rng.randint(1, 200)), b"GET", b"GET  / HTTP/1.1", b" GET / HTTP/1.1"),
            *(
                b"GET / HTTP/1.1 x",
                b"GET\t/\tHTTP/1.1",
                b"\x16\x03\x01\x02\x00\x01\x00",
                b"{}",
                b"\x00",
            ),
            *(
                b"GET / http/1.1",
                b"GET / HTTP/9.9",
                b"GET / HTTP/1.1\x00",
                b"PRI * HTTP/2.0",
                b"\n\n",
            ),
        )
    )
    # Random bytes must not end a head by chance: what follows would be a request of its own.
    return attack(target, line.replace(b"\r\n", b"") + b"\r\nHost: a\r\n\r\n", method="GET")


@kind
def header_bytes(rng: Random, target: Target) -> Attack:
    lines = [rng.randbytes(rng.randint(0, 60)).replace(b"\r\n", b"") for _ in range(3)]
    lines[1] = rng.choice(
        (lines[1], b"novalue", b": x", b" folded: x", b"a b: c", b"\xff: y", b"x:")
    )
    whole = head(target)[:-2] + b"\r\n".join(lines).lstrip(b"\r\n") + b"\r\n\r\n"
    # An empty line among them ends the head: the rest is the next request.
    return attack(target, whole)


@kind
def header_values(rng: Random, target: Target) -> Attack:
    name = rng.choice(NAMES)
    body = body_of(target)
    sent = (TYPE, ("Content-Length", str(len(body))), (name, rng.choice(JUNK)))
    return attack(target, head(target, sent) + body)


@kind
def wrong_keys(rng: Random, target: Target) -> Attack:
    name = rng.choice(("Authorization", "X-Api-Key", "authorization"))
    sent = ((name, rng.choice(JUNK).decode("utf-8", "replace")),) if rng.random() < 0.8 else ()
    return attack(target, with_body(replace(target, headers=sent), body_of(target)))


@kind
def preflights(rng: Random, target: Target) -> Attack:
    sent = [("Origin", rng.choice(JUNK)), ("Access-Control-Request-Headers", rng.choice(JUNK))]
    return attack(target, head(target, sent, method="OPTIONS"), method="OPTIONS")


@kind
def conversation_ids(rng: Random, target: Target) -> Attack:
    name = rng.choice((*JUNK, b"fuzz", b"fuzz", b"fuzz::1", b"y" * 513))
    return attack(target, with_body(target, streamed(target, 5), ("X-Conversation-Id", name)))


@kind
def header_floods(rng: Random, target: Target) -> Attack:
    flood: bytes
    match rng.randrange(4):
        case 0:
            flood = head(target, [(f"X-{n}", "y") for n in range(rng.choice((300, 3000)))])
        case 1:
            flood = head(target, [("X-Long", "y" * rng.choice((10_000, 17_000, 70_000)))])
        case 2:
            flood = head(
                target, path=target.path + "?" + "q" * rng.choice((10_000, 17_000, 70_000))
            )
        case _:
            flood = head(target, [("X-Same", "y")] * 500)
    # A server that has answered closes; what it has not read of the flood tears the answer away.
    return attack(target, flood, must_answer=False)


@kind
def versions(rng: Random, target: Target) -> Attack:
    word = rng.choice(
        ("HTTP/1.0", "HTTP/1.0", "HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTTP/1", "", "x")
    )
    version = "1.0" if word == "HTTP/1.0" else "1.1"
    data = with_body(target, streamed(target, 5), version=word)
    return attack(target, data, version=version)


@kind
def methods(rng: Random, target: Target) -> Attack:
    method = rng.choice(METHODS)
    data = rng.choice(
        (head(target, method=method), with_body(target, body_of(target), method=method))
    )
    return attack(target, data, method=method)


@kind
def paths(rng: Random, target: Target) -> Attack:
    own, end = target.path.encode(), rng.choice(ENDS)
    path = rng.choice(
        (own + end, end, own.replace(b"/", b"//"), b"http://other.example" + own, b"*", own.upper())
    )
    if path[:1] not in (b"/", b"h", b"*"):
        path = b"/" + path
    body = body_of(target)
    return attack(target, with_body(target, body, path=path))


@kind
def queries(rng: Random, target: Target) -> Attack:
    path = target.path.encode() + rng.choice(QUERIES)
    return attack(target, with_body(target, body_of(target), path=path))


@kind
def upgrades(rng: Random, target: Target) -> Attack:
    asked = rng.choice(("websocket", "h2c", "websocket, h2c", "TLS/1.0"))
    sent = (("Connection", "Upgrade"), ("Upgrade", asked), ("Sec-WebSocket-Version", "13"))
    return attack(target, with_body(target, body_of(target), *sent))


@kind
def broken_chunks(rng: Random, target: Target) -> Attack:
    sent = (
        TYPE,
        ("Transfer-Encoding", rng.choice(("chunked", "chunked", "Chunked", "gzip, chunked", "x"))),
    )
    data = rng.choice(
        (
            *(
                b"zz\r\nabc\r\n",
                b"-5\r\nabcde\r\n",
                b"ffffffffffffffff\r\nabc",
                b"3\r\nabcdef\r\n0\r\n\r\n",
            ),
            *(
                b"\r\n\r\n",
                b"0\r\nX: y\r\n\r\n",
                b"3;" + b"e" * 500 + b"\r\nabc\r\n",
                b"5\r\n{}",
                b"0x2\r\n{}\r\n",
            ),
            *(
                b"2\r\n{}\r\n",
                b"2\n{}\n0\n\n",
                b"\x00\r\n",
                b"2 \r\n{}\r\n0\r\n\r\n",
                rng.randbytes(40),
            ),
            *(b"2_0\r\n{}\r\n", b"\xd9\xa2\r\n{}\r\n0\r\n\r\n", b"9" * 5000 + b"\r\n"),
        )
    )
    ending = rng.choice((Ending.HALF, Ending.RESET))
    return attack(target, head(target, sent), data, ending=ending, must_answer=False)


@kind
def length_lies(rng: Random, target: Target) -> Attack:
    body = body_of(target)
    said = rng.choice(
        (
            *(
                str(len(body) + 50),
                str(max(0, len(body) - 5)),
                "0",
                "-1",
                "abc",
                "1e3",
                "+5",
                "9" * 30,
            ),
            *("9" * 5000, "0x10", " 5 ", "5, 5", "", "\u0665", f"{len(body)}, {len(body)}", "1_0"),
        )
    )
    lengths = [("Content-Length", said)] * rng.choice((1, 1, 1, 2))
    if rng.random() < 0.2:
        lengths.append(("Transfer-Encoding", "chunked"))
    ending = rng.choice((Ending.HALF, Ending.RESET))
    return attack(target, head(target, (TYPE, *lengths)) + body, ending=ending, must_answer=False)


@kind
def expectations(rng: Random, target: Target) -> Attack:
    word = rng.choice(("100-continue", "100-continue", "100-Continue", "200-ok", "", "x"))
    body = body_of(target)
    sent = (TYPE, ("Content-Length", str(len(body))), ("Expect", word))
    waits = word.lower() == "100-continue"
    return attack(target, head(target, sent), body, waits_for_100=waits, must_answer=waits)


@kind
def pipelined(rng: Random, target: Target) -> Attack:
    one = with_body(target, body_of(target))
    if rng.random() < 0.5:
        return attack(target, one * 3, answers=3)
    junk = rng.choice((rng.randbytes(80), b"\r\n\r\n", b"GET", b"GET / HTTP/1.1\r\n", b"}" * 400))
    # What follows is read as the next request, which never ends: the client ends it.
    return attack(target, one + junk, ending=Ending.HALF, must_answer=False)


@kind
def slow_senders(rng: Random, target: Target) -> Attack:
    whole = with_body(target, body_of(target))
    cuts = sorted(rng.sample(range(1, len(whole)), min(4, len(whole) - 1)))
    pieces: list[bytes | float] = []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        pieces += [whole[start:end], 0.01]
    return attack(target, *pieces, is_plain=True)


@kind
def reset_in_request(rng: Random, target: Target) -> Attack:
    whole = with_body(target, body_of(target))
    cut = rng.randrange(len(whole))
    return attack(target, whole[:cut], 0.002, ending=Ending.RESET, must_answer=False)


@kind
def reset_in_answer(rng: Random, target: Target) -> Attack:
    named = (("X-Conversation-Id", f"left-{rng.randrange(9)}"),) if rng.random() < 0.3 else ()
    data = with_body(target, streamed(target), *named)
    many = rng.choice((0, 1, 20, 300, 1000))
    return attack(target, data, ending=Ending.RESET, bytes_read=many, must_answer=False)


@kind
def half_closed(rng: Random, target: Target) -> Attack:
    whole = with_body(target, streamed(target, 5))
    cut = rng.choice((len(whole), len(whole), rng.randrange(len(whole))))
    return attack(target, whole[:cut], ending=Ending.HALF, must_answer=False)


@kind
def nothing_sent(rng: Random, target: Target) -> Attack:
    ending = rng.choice((Ending.HALF, Ending.RESET))
    piece = rng.choice((b"", b"\r\n", b"G", b"GET / HTTP/1.1\r\n"))
    return attack(target, piece, ending=ending, must_answer=False)
