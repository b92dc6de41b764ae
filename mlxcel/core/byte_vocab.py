"""The vocabulary of bytes: one token per byte, and a handful of markers.

Spoken by the echo worker and by the tiny checkpoints of the tests. The front builds the
tokenizer for it (`text.bytes`); a worker that speaks it needs no more than these numbers.
"""

BYTES = 256
"""Token ids below this are the bytes themselves."""

BOS = 256
EOS = 257
SYSTEM = 258
USER = 259
ASSISTANT = 260
TOOL = 261
END = 262

VOCAB_SIZE = 264
"""Room for every id; 263 is unused, so that the size divides by 8."""

SPECIALS = {
    "<|bos|>": BOS,
    "<|eos|>": EOS,
    "<|system|>": SYSTEM,
    "<|user|>": USER,
    "<|assistant|>": ASSISTANT,
    "<|tool|>": TOOL,
    "<|end|>": END,
}
"""The markers as text. A turn is `<|user|>text<|end|>`; `<|assistant|>` asks for an answer."""

TURN_ENDS = (EOS, END)
"""Either of them ends an answer."""
