"""Streams over HTTP, with the time at which each token arrived."""

import json
import threading
import time
import urllib.request

PROMPTS = (
    "Write a long story about a lighthouse keeper and the sea.",
    "Explain in great detail how bread is made, from the field to the table.",
    "Describe a walk through an old city, street by street, with all you see.",
    "Tell the whole history of the bicycle, with names and years.",
)


def decode_rate(url: str, streams: int, tokens: int) -> float:
    """Tokens a second while all streams decode. Raises when one did not run to its end."""
    arrivals: list[list[float]] = [[] for _ in range(streams)]
    threads = [
        threading.Thread(target=_stream, args=(url, PROMPTS[i], tokens, arrivals[i]))
        for i in range(streams)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if any(len(times) < tokens // 2 for times in arrivals):
        raise SystemExit(f"{url}: a stream ended early: {[len(t) for t in arrivals]} pieces")
    began, ended = max(t[0] for t in arrivals), min(t[-1] for t in arrivals)
    inside = sum(sum(began < moment <= ended for moment in times) for times in arrivals)
    return inside / (ended - began)


def _stream(url: str, prompt: str, tokens: int, arrivals: list[float]) -> None:
    body = {
        "model": "default_model",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=300) as response:
        for line in response:
            if line.startswith(b"data: {") and _has_content(json.loads(line[6:])):
                arrivals.append(time.perf_counter())


def _has_content(chunk: dict) -> bool:
    choices = chunk.get("choices") or [{}]
    return bool(choices[0].get("delta", {}).get("content"))
