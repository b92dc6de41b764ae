"""The known formats, by the names mlx-lm gives its parsers."""

import re

import regex  # type: ignore[import-untyped]

from mlxcel.text.tools import readers
from mlxcel.text.tools.format import Bare, ToolFormat
from mlxcel.text.tools.grammar import Slot, Wrapper

_JSON = re.compile(r"\s*(?=[\[{])")
_MISTRAL_LEAD = re.compile(rf"(?:{readers.MISTRAL_HEAD.pattern}|\s*)(?=[\[{{])")
# The first keys tell a call from any other JSON; a name is no longer than this.
_TEXT = r'"(?:[^"\\]|\\.){0,256}"'
_LLAMA3_BARE = regex.compile(
    rf'\s*\{{\s*(?:"(?:type|name|function)"\s*:\s*{_TEXT}\s*,\s*)*'
    r'"(?:parameters|arguments)"\s*:\s*\{.*',
    regex.DOTALL,
)

_NAME_ARGUMENTS = ('{"name": ', Slot.QUOTED_NAME, ', "arguments": ', Slot.ARGUMENTS, "}")

MINIMAX_M2 = ToolFormat(
    name="minimax_m2",
    start="<minimax:tool_call>",
    end="</minimax:tool_call>",
    markers=("<minimax:tool_call>", "</minimax:tool_call>"),
    reader=readers.textual(
        "minimax_m2", (("<invoke name=", "</invoke>"), ("<parameter name=", "</parameter>"))
    ),
)
GEMMA4 = ToolFormat(
    name="gemma4",
    start="<|tool_call>",
    end="<tool_call|>",
    markers=("<|tool_call>", "<tool_call|>", '<|"|>'),
    reader=readers.gemma4,
)
FUNCTION_GEMMA = ToolFormat(
    name="function_gemma",
    start="<start_function_call>",
    end="<end_function_call>",
    markers=("<start_function_call>", "<end_function_call>", "<escape>"),
    reader=readers.function_gemma,
)
LONGCAT = ToolFormat(
    name="longcat",
    start="<longcat_tool_call>",
    end="</longcat_tool_call>",
    markers=(
        "<longcat_tool_call>",
        "</longcat_tool_call>",
        *(mark for pair in readers.LONGCAT_PAIRS for mark in pair),
    ),
    reader=readers.longcat,
)
GLM47 = ToolFormat(
    name="glm47",
    start="<tool_call>",
    end="</tool_call>",
    markers=(
        "<tool_call>",
        "</tool_call>",
        *(mark for pair in readers.GLM47_PAIRS for mark in pair),
    ),
    reader=readers.glm47,
)
PYTHONIC = ToolFormat(
    name="pythonic",
    start="<|tool_call_start|>",
    end="<|tool_call_end|>",
    markers=("<|tool_call_start|>", "<|tool_call_end|>"),
    reader=readers.plain("pythonic"),
)
QWEN3_CODER = ToolFormat(
    name="qwen3_coder",
    start="<tool_call>",
    end="</tool_call>",
    markers=("<tool_call>", "</tool_call>"),
    reader=readers.qwen3_coder,
)
KIMI_K2 = ToolFormat(
    name="kimi_k2",
    start="<|tool_calls_section_begin|>",
    end="<|tool_calls_section_end|>",
    markers=(
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    ),
    reader=readers.kimi_k2,
)
MINICPM5 = ToolFormat(
    name="minicpm5",
    start="<function name=",
    end="</function>",
    markers=(),
    reader=readers.textual("minicpm5", (("<param name=", "</param>"),)),
)
MISTRAL = ToolFormat(
    name="mistral",
    start="[TOOL_CALLS]",
    end="",
    markers=("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
    reader=readers.mistral,
    json_lead=_MISTRAL_LEAD,
    wrapper=Wrapper(
        before=("[TOOL_CALLS]", "["), call=_NAME_ARGUMENTS, separator=", ", after=("]",)
    ),
)
MISTRAL_ARGS = ToolFormat(
    name="mistral",
    start=MISTRAL.start,
    end=MISTRAL.end,
    markers=MISTRAL.markers,
    reader=MISTRAL.reader,
    json_lead=MISTRAL.json_lead,
    wrapper=Wrapper(call=("[TOOL_CALLS]", Slot.NAME, "[ARGS]", Slot.ARGUMENTS), separator=""),
)
"""The later models of the family write one marker and one name before each object."""
MUSE_SPARK = ToolFormat(
    name="muse_spark",
    start="<atem:function_calls>",
    end="</atem:function_calls>",
    markers=("<atem:function_calls>", "</atem:function_calls>"),
    reader=readers.muse_spark,
)
JSON_TOOLS = ToolFormat(
    name="json_tools",
    start="<tool_call>",
    end="</tool_call>",
    markers=("<tool_call>", "</tool_call>"),
    reader=readers.plain("json_tools"),
    json_lead=_JSON,
    wrapper=Wrapper(
        call=("<tool_call>", "\n", *_NAME_ARGUMENTS, "\n", "</tool_call>"), separator="\n"
    ),
)
KIMI_K3 = ToolFormat(
    name="kimi_k3",
    start="<|open|>tools<|sep|>",
    end="<|close|>tools<|sep|>",
    markers=("<|open|>", "<|close|>", "<|sep|>"),
    reader=readers.kimi_k3,
)
LLAMA3_JSON = ToolFormat(
    name="llama3_json",
    start="<|python_tag|>",
    end="",
    markers=("<|python_tag|>",),
    reader=readers.llama3,
    json_lead=_JSON,
    bare=Bare(shape=_LLAMA3_BARE, reader=readers.llama3_bare),
    # Its templates show one call at a time, without the tag.
    wrapper=Wrapper(call=('{"name": ', Slot.QUOTED_NAME, ', "parameters": ', Slot.ARGUMENTS, "}")),
)
