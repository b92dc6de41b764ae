"""A tree that every rule is content with, and cards of two models."""

import copy
from typing import Any

from mlxcel.config.keys import write
from mlxcel.core.card import Card

TREE: dict[str, Any] = {
    "model": {
        "kind": "mlx",
        "path": "/models/tiny",
        "source": None,
        "precision": "auto",
        "cache_dir": "/var/mlxcel",
        "lora": {"adapters": []},
    },
    "draft": {"kind": "none"},
    "engine": {"kind": "mlx"},
    "scheduler": {"parallel": 4, "max_batch_size": None, "no_batch": False},
    "cache": {
        "max_kv_size": 0,
        "kv_budget": "auto",
        "decode_storage": "auto",
        "prompt": {
            "enabled": True,
            "capacity_bytes": None,
            "ram_mib": None,
            "max_entries": 1024,
            "reuse": 0,
        },
        "snapshot": {"capacity_bytes": None, "boundary": True},
        "kv": {"mode": "fp16", "type_k": None, "type_v": None, "bits": 0, "scheme": "uniform"},
        "disk": {"path": None},
        "conversations": {"enabled": False, "disk_dir": None},
        "prefix_dir": None,
        "slot_save_path": None,
    },
    "generation": {
        "reasoning": {"enabled": "auto", "alias_field": "reasoning"},
        "lang_bias": {"file": None},
        "sampling": {"adaptive": {"named": False, "target": -1.0}},
    },
    "live": {"sampling": {"max_tokens": 512}, "lang_bias": None},
    "limits": {
        "ctx_size": 0,
        "request_memory_budget": None,
        "body_bytes": None,
        "media_path": None,
        "allow_private_media_urls": False,
        "image": {"payload_bytes": 67108864, "max_images": 16},
        "video": {"dir_allowlist": []},
    },
    "workers": {"placement": "process"},
    "server": {
        "host": "127.0.0.1",
        "port": 8080,
        "reuse_port": False,
        "tls": {"cert": None, "key": None},
        "cors": {"origins": None, "allowed_origins": None, "credentials": True},
        "api_prefix": "",
        "api_keys": [],
        "api_key_files": [],
    },
    "routes": {"settings": "auto", "rows": {"a": {}, "b": {}}},
}


def card_of(*, train_window: int = 8192, family: str = "llama") -> Card:
    return Card(name="tiny", family=family, train_window=train_window)


ONE_ROW = Card(
    name="tiny", family="jamba", train_window=8192, can_batch=False, reason="recurrent state"
)


def tree(**values: Any) -> dict[str, Any]:
    """TREE with dotted keys set, their dots written as double underscores."""
    made = copy.deepcopy(TREE)
    for name, value in values.items():
        write(made, name.replace("__", "."), value)
    return made
