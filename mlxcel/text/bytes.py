"""A tokenizer whose tokens are bytes: for model=echo and for tiny test checkpoints.

The ids are those of `core.byte_vocab`. Also the alphabet that byte-level vocabularies use to
write bytes as printable characters.
"""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from mlxcel.core.byte_vocab import BOS, SPECIALS

BYTE_TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role not in ("system", "user", "assistant", "tool") -%}
{{ raise_exception("unknown role " ~ message.role) }}
{%- endif -%}
{{ "<|" ~ message.role ~ "|>" ~ message.content }}
{%- if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif -%}
{{ "<|end|>" }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ "<|assistant|>" }}{% endif -%}
"""


def _alphabet() -> dict[int, str]:
    """Byte -> character, as GPT-2 laid it down: printable bytes stay, the others move up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = (b for b in range(256) if b not in printable)
    return {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(moved)}


CHAR_OF_BYTE = _alphabet()
BYTE_OF_CHAR = {char: byte for byte, char in CHAR_OF_BYTE.items()}


def byte_tokenizer() -> Tokenizer:
    """256 byte tokens without merges, and the markers of `core.byte_vocab` as special tokens."""
    tokenizer = Tokenizer(models.BPE(vocab={c: b for b, c in CHAR_OF_BYTE.items()}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    markers = sorted(SPECIALS, key=SPECIALS.__getitem__)
    tokenizer.add_special_tokens([AddedToken(m, special=True, normalized=False) for m in markers])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", BOS)]
    )
    return tokenizer
