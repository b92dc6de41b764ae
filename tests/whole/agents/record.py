"""The goldens of the agents. `python -m tests.whole.agents.record` writes them anew: a changed
golden is a changed wire format, say so in the change."""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.whole.agents.agent import SCRIPT, TURNS, Agent, events, post
from tests.whole.agents.chat import ChatAgent
from tests.whole.agents.messages import MessagesAgent
from tests.whole.agents.responses import ResponsesAgent
from tests.whole.agents.wire import Stable
from tests.whole.program import Program

ROOT = Path(__file__).parents[2] / "golden" / "agents"
AGENTS: dict[str, Agent] = {
    "chat/plain": ChatAgent(stream=False),
    "chat/stream": ChatAgent(stream=True),
    "messages/plain": MessagesAgent(stream=False),
    "messages/stream": MessagesAgent(stream=True),
    "responses/plain": ResponsesAgent(stream=False),
    "responses/stream": ResponsesAgent(stream=True),
    "responses/kept": ResponsesAgent(stream=True, is_kept=True),
}


def server() -> Program:
    """Scripted, under a template that shows tools and thoughts."""
    lines = ", ".join(f"{{when: '{when}', say: '{say}'}}" for when, say in SCRIPT.items())
    template = f"generation.chat_template.file={ROOT / 'template.jinja'}"
    return Program("model=echo", "engine.window=16384", template, f"engine.script=[{lines}]")


def turns(program: Program, agent: Agent) -> Iterator[tuple[str, str]]:
    """Name and text of each golden of a conversation. What is asked in a turn is made of what was
    answered in the one before."""
    stable, body = Stable(), agent.first()
    for turn in range(1, TURNS + 1):
        yield f"turn{turn}.request.json", stable.request(body)
        raw = post(program.url, agent.path, body)
        if body.get("stream"):
            yield f"turn{turn}.stream.txt", stable.stream(raw)
            answer = agent.whole(events(raw))
        else:
            yield f"turn{turn}.answer.json", stable.answer(raw)
            answer = json.loads(raw)
        if turn < TURNS:
            body = agent.then(body, answer, turn + 1)


def main() -> None:
    with server() as program:
        for name, agent in AGENTS.items():
            folder = ROOT / name
            folder.mkdir(parents=True, exist_ok=True)
            for file, text in turns(program, agent):
                (folder / file).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
