"""Every format with the same calls: `weather` in Oslo for 3 days, then `ping` without arguments
or with one, as models of the format write them."""

from dataclasses import dataclass
from typing import Any

from mlxcel.core.request import Tool
from mlxcel.text.tools import formats
from mlxcel.text.tools.format import ToolFormat


def tool(name: str, parameters: dict[str, Any]) -> Tool:
    return Tool(name=name, parameters=parameters, sent={})


WEATHER = tool(
    "weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "ratio": {"type": "number"},
            "metric": {"type": "boolean"},
            "unit": {"type": ["string", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "spot": {"type": "object"},
        },
    },
)
PING = tool("ping", {"type": "object", "properties": {"id": {"type": "string"}}})
TOOLS = (WEATHER, PING)

OSLO = '{"city":"Oslo","days":3}'
PONG = '{"id":"a"}'
TYPED = (
    '{"city":"12","days":3,"ratio":0.5,"metric":true,"unit":null,"tags":["a","ø"],'
    '"spot":{"lat":1.5,"in":{"k":[1]}}}'
)
"""What the `typed` text of every format says."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    format: ToolFormat
    one: str
    two: str
    typed: str
    broken: str


def _minimax(*calls: str) -> str:
    return f"<minimax:tool_call>\n{''.join(calls)}</minimax:tool_call>"


def _xml(open_call: str, close_call: str, open_value: str, close_value: str, **values: str) -> str:
    name = values.pop("name")
    inside = "".join(open_value.format(key) + v + close_value for key, v in values.items())
    return open_call.format(name) + inside + close_call


def _invoke(**values: str) -> str:
    return _xml(
        '<invoke name="{}">\n', "</invoke>\n", '<parameter name="{}">', "</parameter>\n", **values
    )


def _atem(**values: str) -> str:
    return _xml(
        '<atem:invoke name="{}">\n',
        "</atem:invoke>\n",
        '<atem:parameter name="{}">',
        "</atem:parameter>\n",
        **values,
    )


def _qwen(**values: str) -> str:
    return _xml(
        "<tool_call>\n<function={}>\n",
        "</function>\n</tool_call>",
        "<parameter={}>\n",
        "\n</parameter>\n",
        **values,
    )


def _glm(**values: str) -> str:
    return _xml(
        "<tool_call>{}\n",
        "</tool_call>",
        "<arg_key>{}</arg_key>\n<arg_value>",
        "</arg_value>\n",
        **values,
    )


def _longcat(**values: str) -> str:
    return _xml(
        "<longcat_tool_call>{}\n",
        "</longcat_tool_call>",
        "<longcat_arg_key>{}</longcat_arg_key>\n<longcat_arg_value>",
        "</longcat_arg_value>\n",
        **values,
    )


def _minicpm(**values: str) -> str:
    return _xml('<function name="{}">', "</function>", '<param name="{}">', "</param>", **values)


def _k2(*calls: tuple[str, str]) -> str:
    inside = "".join(
        f"<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>{args}"
        "<|tool_call_end|>"
        for n, (name, args) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inside}<|tool_calls_section_end|>"


def _k3(*calls: str) -> str:
    return f"<|open|>tools<|sep|>{''.join(calls)}<|close|>tools<|sep|>"


def _k3_call(name: str, *arguments: tuple[str, str, str]) -> str:
    inside = "".join(
        f'<|open|>argument key="{key}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'
        for key, kind, value in arguments
    )
    return f'<|open|>call tool="{name}" index="1"<|sep|>{inside}<|close|>call<|sep|>'


def _hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def _llama(name: str, arguments: str) -> str:
    return f'{{"name": "{name}", "parameters": {arguments}}}'


_OSLO = {"name": "weather", "city": "Oslo", "days": "3"}
_PING = {"name": "ping", "id": "a"}
_TEXTS = {
    "name": "weather",
    "city": "12",
    "days": "3",
    "ratio": "0.5",
    "metric": "true",
    "unit": "null",
    "tags": '["a", "ø"]',
    "spot": '{"lat": 1.5, "in": {"k": [1]}}',
}
_K3_OSLO = _k3_call("weather", ("city", "string", "Oslo"), ("days", "number", "3"))
_K3_PING = _k3_call("ping", ("id", "string", "a"))
_GEMMA_TYPED = (
    "city:{q}12{q},days:3,ratio:0.5,metric:true,unit:null,tags:[{q}a{q},{q}ø{q}],"
    "spot:{{lat:1.5,in:{{k:[1]}}}}"
)


def _gemma(name: str, inside: str) -> str:
    return f"<|tool_call>call:{name}{{{inside}}}<tool_call|>"


def _function_gemma(name: str, inside: str) -> str:
    return f"<start_function_call>call:{name}{{{inside}}}<end_function_call>"


SAMPLES = (
    Sample(
        format=formats.MINIMAX_M2,
        one=_minimax(_invoke(**_OSLO)),
        two=_minimax(_invoke(**_OSLO), _invoke(**_PING)),
        typed=_minimax(_invoke(**_TEXTS)),
        broken='<minimax:tool_call><invoke name="weather"><parameter name="city">Os'
        "</invoke></minimax:tool_call>",
    ),
    Sample(
        format=formats.GEMMA4,
        one=_gemma("weather", 'city:<|"|>Oslo<|"|>,days:3'),
        two=_gemma("weather", 'city:<|"|>Oslo<|"|>,days:3') + _gemma("ping", 'id:<|"|>a<|"|>'),
        typed=_gemma("weather", _GEMMA_TYPED.format(q='<|"|>')),
        broken='<|tool_call>call:weather{city:<|"|>Oslo<tool_call|>',
    ),
    Sample(
        format=formats.FUNCTION_GEMMA,
        one=_function_gemma("weather", "city:<escape>Oslo<escape>,days:3"),
        two=_function_gemma("weather", "city:<escape>Oslo<escape>,days:3")
        + _function_gemma("ping", "id:<escape>a<escape>"),
        typed=_function_gemma("weather", _GEMMA_TYPED.format(q="<escape>")),
        broken="<start_function_call>call:weather{city:<escape>Oslo}<end_function_call>",
    ),
    Sample(
        format=formats.LONGCAT,
        one=_longcat(**_OSLO),
        two=_longcat(**_OSLO) + "\n" + _longcat(**_PING),
        typed=_longcat(**_TEXTS),
        broken="<longcat_tool_call>weather<longcat_arg_key>city</longcat_arg_key>"
        "<longcat_arg_value>Os</longcat_tool_call>",
    ),
    Sample(
        format=formats.GLM47,
        one=_glm(**_OSLO),
        two=_glm(**_OSLO) + "\n" + _glm(**_PING),
        typed=_glm(**_TEXTS),
        broken="<tool_call>weather<arg_key>city</arg_key><arg_value>Os</tool_call>",
    ),
    Sample(
        format=formats.PYTHONIC,
        one='<|tool_call_start|>[weather(city="Oslo", days=3)]<|tool_call_end|>',
        two='<|tool_call_start|>[weather(city="Oslo", days=3), ping(id="a")]<|tool_call_end|>',
        typed='<|tool_call_start|>[weather(city="12", days=3, ratio=0.5, metric=True, unit=None, '
        'tags=["a", "ø"], spot={"lat": 1.5, "in": {"k": [1]}})]<|tool_call_end|>',
        broken='<|tool_call_start|>[weather(city="Oslo"<|tool_call_end|>',
    ),
    Sample(
        format=formats.QWEN3_CODER,
        one=_qwen(**_OSLO),
        two=_qwen(**_OSLO) + "\n" + _qwen(**_PING),
        typed=_qwen(**_TEXTS),
        broken="<tool_call>\n<function=weather>\n<parameter=city>\nOs\n</function>\n</tool_call>",
    ),
    Sample(
        format=formats.KIMI_K2,
        one=_k2(("weather", '{"city": "Oslo", "days": 3}')),
        two=_k2(("weather", '{"city": "Oslo", "days": 3}'), ("ping", '{"id": "a"}')),
        typed=_k2(("weather", TYPED)),
        broken=_k2(("weather", '{"city": "Os')),
    ),
    Sample(
        format=formats.MINICPM5,
        one=_minicpm(**_OSLO),
        two=_minicpm(**_OSLO) + _minicpm(**_PING),
        typed=_minicpm(**{**_TEXTS, "tags": '<![CDATA[["a", "ø"]]]>'}),
        broken='<function name="weather"><param name="city">Os</function>',
    ),
    Sample(
        format=formats.MISTRAL,
        one='[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}]',
        two='[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Oslo", "days": 3}}, '
        '{"name": "ping", "arguments": {"id": "a"}}]',
        typed=f'[TOOL_CALLS][{{"name": "weather", "arguments": {TYPED}}}]',
        broken='[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Os',
    ),
    Sample(
        format=formats.MISTRAL_ARGS,
        one='[TOOL_CALLS]weather[ARGS]{"city": "Oslo", "days": 3}',
        two='[TOOL_CALLS]weather[CALL_ID]x1[ARGS]{"city": "Oslo", "days": 3}'
        '[TOOL_CALLS]ping[ARGS]{"id": "a"}',
        typed=f"[TOOL_CALLS]weather[ARGS]{TYPED}",
        broken='[TOOL_CALLS]weather[ARGS]{"city": "Os',
    ),
    Sample(
        format=formats.MUSE_SPARK,
        one=f"<atem:function_calls>{_atem(**_OSLO)}</atem:function_calls>",
        two=f"<atem:function_calls>{_atem(**_OSLO)}{_atem(**_PING)}</atem:function_calls>",
        typed=f"<atem:function_calls>{_atem(**_TEXTS)}</atem:function_calls>",
        broken='<atem:function_calls><atem:invoke name="weather"><atem:parameter name="city">Os'
        "</atem:function_calls>",
    ),
    Sample(
        format=formats.JSON_TOOLS,
        one=_hermes("weather", '{"city": "Oslo", "days": 3}'),
        two=_hermes("weather", '{"city": "Oslo", "days": 3}') + "\n" + _hermes("ping", PONG),
        typed=_hermes("weather", TYPED),
        broken='<tool_call>\n{"name": "weather", "arguments": {"city": "Os}\n</tool_call>',
    ),
    Sample(
        format=formats.KIMI_K3,
        one=_k3(_K3_OSLO),
        two=_k3(_K3_OSLO, _K3_PING),
        typed=_k3(
            _k3_call(
                "weather",
                ("city", "string", "12"),
                ("days", "number", "3"),
                ("ratio", "number", "0.5"),
                ("metric", "boolean", "true"),
                ("unit", "null", "null"),
                ("tags", "array", '["a", "ø"]'),
                ("spot", "object", '{"lat": 1.5, "in": {"k": [1]}}'),
            )
        ),
        broken=_k3(_K3_OSLO, '<|open|>call tool="ping" index="2"<|sep|>'),
    ),
    Sample(
        format=formats.LLAMA3_JSON,
        one=_llama("weather", '{"city": "Oslo", "days": 3}'),
        two=_llama("weather", '{"city": "Oslo", "days": 3}') + "; " + _llama("ping", PONG),
        typed=_llama("weather", TYPED),
        broken='{"name": "weather", "parameters": {"city": "Os',
    ),
    Sample(
        format=formats.LLAMA3_JSON,
        one="<|python_tag|>" + _llama("weather", '{"city": "Oslo", "days": 3}'),
        two="<|python_tag|>"
        + _llama("weather", '{"city": "Oslo", "days": 3}')
        + "\n"
        + _llama("ping", PONG),
        typed="<|python_tag|>" + _llama("weather", TYPED),
        broken='<|python_tag|>weather.call(city="Oslo")',
    ),
)


def _id(sample: Sample) -> str:
    tagged = sample.format is formats.LLAMA3_JSON and sample.one.startswith("<")
    headed = sample.format is formats.MISTRAL_ARGS
    return sample.format.name + "-tag" * tagged + "-args" * headed


IDS = [_id(sample) for sample in SAMPLES]
