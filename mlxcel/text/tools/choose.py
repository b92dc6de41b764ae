"""Which format a model writes, told from its chat template, then from its vocabulary."""

from collections.abc import Container, Iterable

from mlxcel.text.tools.format import ToolFormat
from mlxcel.text.tools.formats import (
    FUNCTION_GEMMA,
    GEMMA4,
    GLM47,
    JSON_TOOLS,
    KIMI_K2,
    KIMI_K3,
    LLAMA3_JSON,
    LONGCAT,
    MINICPM5,
    MINIMAX_M2,
    MISTRAL,
    MISTRAL_ARGS,
    MUSE_SPARK,
    PYTHONIC,
    QWEN3_CODER,
)

_Row = tuple[tuple[str, ...], ToolFormat]
"""All of these texts have to be there."""

# The order is mlx-lm's (`tokenizer_utils._infer_tool_parser`): the first match wins.
_BY_TEMPLATE: tuple[_Row, ...] = (
    (("<minimax:tool_call>",), MINIMAX_M2),
    (("<|tool_call>", "<tool_call|>"), GEMMA4),
    (("<start_function_call>",), FUNCTION_GEMMA),
    (("<longcat_tool_call>",), LONGCAT),
    (("<arg_key>",), GLM47),
    (("<|tool_list_start|>",), PYTHONIC),
    (("<|tool_call_start|>",), PYTHONIC),
    # A template holds the line end, or the escape for it inside a string.
    (("<tool_call>\n<function=",), QWEN3_CODER),
    (("<tool_call>\\n<function=",), QWEN3_CODER),
    (("<|tool_calls_section_begin|>",), KIMI_K2),
    (('<function name="', '<param name="'), MINICPM5),
    (("[TOOL_CALLS]", "[ARGS]"), MISTRAL_ARGS),
    (("[TOOL_CALLS]",), MISTRAL),
    (("<atem:function_calls>",), MUSE_SPARK),
    (("<tool_call>", "tool_call.name"), JSON_TOOLS),
)
_BY_WORDS: tuple[_Row, ...] = (
    (("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"), KIMI_K3),
    (("<|tool_call_start|>", "<|tool_call_end|>"), PYTHONIC),
)
_LLAMA3: tuple[_Row, ...] = (
    (("<|python_tag|>",), LLAMA3_JSON),
    # Shown in another way than by `tool_call.name`; no Llama has this marker.
    (("<tool_call>",), JSON_TOOLS),
    (('"parameters":',), LLAMA3_JSON),
)
# A template may know nothing of tools while the model was taught to call them all the same.
_UNTOLD: tuple[_Row, ...] = ((("<tool_call>", "</tool_call>"), JSON_TOOLS),)


def find_format(template: str | None, words: Container[str]) -> ToolFormat | None:
    """`words` is the vocabulary, special tokens included."""
    text = "" if template is None else template
    return (
        _first(_BY_TEMPLATE, text)
        or _first(_BY_WORDS, words)
        or _first(_LLAMA3, text)
        or _first(_UNTOLD, words)
    )


def _first(rows: Iterable[_Row], evidence: Container[str]) -> ToolFormat | None:
    return next((form for texts, form in rows if all(t in evidence for t in texts)), None)
