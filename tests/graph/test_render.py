import json
from dataclasses import replace
from typing import Any

import pytest

from mlxcel.core.card import Card
from mlxcel.graph import render
from mlxcel.graph.spec import Clamp, Edge, NodeSpec, Plan

MODEL = NodeSpec(
    name="model",
    section="model",
    choice="smollm2",
    factory="mlxcel.weights.load:load_model",
    worker="chat",
    provides=("model",),
    options={"path": "/m", "hf_token": "s3cret"},
)
CHAT = NodeSpec(
    name="chat",
    section="engine",
    choice="mlx",
    factory="mlxcel.engine.chat:ChatWorker",
    worker="chat",
    needs=("model",),
    provides=("chat",),
)
SERVER = NodeSpec(
    name="server",
    section="server",
    choice="default",
    factory="mlxcel.http.server:HttpServer",
    worker="front",
    needs=("chat", "settings"),
    wants=("generate",),
    options={"api_keys": ["s3cret"], "inner": [{"hf_token": None}]},
)
TREE: dict[str, Any] = {
    "model": {"path": "/m", "precision": "auto"},
    "scheduler": {"parallel": 1, "max_batch_size": 1, "no_batch": False},
    "limits": {"ctx_size": 0},
    "workers": {"placement": "process"},
    "server": {"host": "127.0.0.1", "port": 8080, "tls": {"cert": None, "key": None}},
    "routes": {"rows": {"a": {}, "b": {}}},
}
CARD = Card(name="SmolLM2", family="llama", train_window=2048, quantization_bits=4)
PLAN = Plan(
    tree=TREE,
    card=CARD,
    nodes={node.name: node for node in (MODEL, CHAT, SERVER)},
    edges=(
        Edge(user="chat", port="model", provider="model", required=True),
        Edge(user="server", port="chat", provider="chat", required=False),
    ),
    order=("model", "chat", "server"),
    clamps=(Clamp(key="scheduler.parallel", asked=4, used=1, reason="family jamba runs one row"),),
    warnings=("no API key is set",),
)

TEXT = """\
chat      mlx      ChatWorker  process  1 slot of 2048 tokens  needs model
└─ model  smollm2  load_model  SmolLM2 (4-bit)  precision auto
server    default  HttpServer  127.0.0.1:8080  needs chat  wants generate
clamp     scheduler.parallel 4 -> 1: family jamba runs one row
warning   no API key is set"""

MERMAID = """\
flowchart LR
  subgraph front["front"]
    server_node["server: HttpServer"]
  end
  subgraph chat_worker["chat worker"]
    model_node["model: load_model"]
    chat_node["chat: ChatWorker"]
  end
  model_node -- model --> chat_node
  chat_node -. chat .-> server_node"""


def test_text_is_a_tree_of_workers_then_the_front() -> None:
    assert render.text(PLAN) == TEXT


def test_all_parts_but_the_last_go_on_below() -> None:
    cache = NodeSpec(
        name="cache", section="cache", choice="none", factory="mlxcel.x:C", worker="chat"
    )
    nodes = {**PLAN.nodes, "cache": cache}
    plan = replace(PLAN, nodes=nodes, order=("model", "cache", "chat", "server"))
    assert [line.split()[0] for line in render.text(plan).splitlines()][1:3] == ["├─", "└─"]


def test_a_model_that_was_not_looked_at_is_shown_as_it_was_asked_for() -> None:
    chat, model, *_ = render.text(replace(PLAN, card=None)).splitlines()
    assert chat.split("  ")[-2:] == ["1 slot", "needs model"]
    assert model.endswith("/m  precision auto")


def test_mermaid_has_a_box_per_process() -> None:
    assert render.mermaid(PLAN) == MERMAID


def test_json_is_the_whole_plan_without_secrets() -> None:
    text = render.as_json(PLAN, {"hf_token", "api_keys"})
    plan = json.loads(text)
    assert "s3cret" not in text
    assert plan["order"] == ["model", "chat", "server"]
    assert plan["nodes"]["model"]["options"] == {"path": "/m", "hf_token": "[redacted]"}
    assert plan["nodes"]["server"]["options"]["inner"] == [{"hf_token": None}]
    assert plan["clamps"][0]["used"] == 1
    assert "tree" not in plan


@pytest.mark.parametrize(
    ("asked", "used", "words"),
    [
        pytest.param(4, 1, "k 4 -> 1: why", id="numbers"),
        pytest.param("auto", False, "k auto -> false: why", id="as-yaml-writes-it"),
        pytest.param(None, 0, "k null -> 0: why", id="null"),
    ],
)
def test_clamp_text(asked: object, used: object, words: str) -> None:
    assert render.clamp_text(Clamp(key="k", asked=asked, used=used, reason="why")) == words


CACHE: dict[str, Any] = {
    "max_kv_size": 0,
    "prompt": {"enabled": True, "max_entries": 1024},
    "kv": {"mode": "fp16", "bits": 0},
    "disk": {"path": None},
    "prefix_dir": None,
    "conversations": {"enabled": False},
}


@pytest.mark.parametrize(
    ("values", "line"),
    [
        pytest.param({}, "cache     KV as fp16  up to 1024 requests kept", id="memory"),
        pytest.param(
            {"disk": {"path": "/var/kv"}, "conversations": {"enabled": True}},
            "cache     KV as fp16  up to 1024 requests kept  files in /var/kv  by conversation",
            id="files-and-conversations",
        ),
        pytest.param(
            {"prefix_dir": "/var/system"},
            "cache     KV as fp16  up to 1024 requests kept  system messages in /var/system",
            id="system-messages",
        ),
        pytest.param(
            {"max_kv_size": 64, "kv": {"mode": "fp16", "bits": 4}, "prompt": {"enabled": False}},
            "cache     KV as fp16 in 4 bits  of the newest 64 tokens  nothing kept",
            id="nothing-kept",
        ),
    ],
)
def test_a_worker_that_keeps_kv_says_how(values: dict[str, Any], line: str) -> None:
    chat = replace(CHAT, options={"cache": CACHE | values})
    plan = replace(PLAN, nodes={**PLAN.nodes, "chat": chat})
    assert line in render.text(plan).splitlines()
    assert not any(row.startswith("cache") for row in render.text(PLAN).splitlines())
