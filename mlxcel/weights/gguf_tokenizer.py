"""A tokenizers file from GGUF metadata: byte-level BPE, with the chat template beside it."""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

CONTROL, USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type
ROLES = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}


def tokenizer_from_gguf(meta: Mapping[str, Any]) -> tuple[Tokenizer, dict[str, Any]]:
    """(tokenizer, content of tokenizer_config.json)."""
    kind = meta["tokenizer.ggml.model"]
    if kind != "gpt2":
        raise SystemExit(f"the tokenizer is of kind {kind!r}; only gpt2 (byte-level BPE) is read")
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ", 1)) for pair in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(meta.get("tokenizer.ggml.pre"))
    tokenizer.decoder = decoders.ByteLevel()
    for special in (True, False):
        wanted = CONTROL if special else USER_DEFINED
        kinds = zip(tokens, meta["tokenizer.ggml.token_type"], strict=True)
        added = [AddedToken(t, special=special, normalized=False) for t, k in kinds if k == wanted]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(added)
    return tokenizer, _config(meta, tokens)


def _pre_tokenizer(name: str | None) -> Any:
    steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if name == "smollm":
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    return pre_tokenizers.Sequence(steps)


def _config(meta: Mapping[str, Any], tokens: list[str]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": meta.get("llama.context_length"),
    }
    for role, key in ROLES.items():
        if (index := meta.get(f"tokenizer.ggml.{key}_token_id")) is not None:
            config[f"{role}_token"] = tokens[index]
    if template := meta.get("tokenizer.chat_template"):
        config["chat_template"] = template
    return config
