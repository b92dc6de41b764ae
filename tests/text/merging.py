"""A byte-level tokenizer with merges and the turn markers of ChatML, trained on the spot."""

from functools import lru_cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from mlxcel.text.tokenizer import TextModel

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = [
    "the cat and the dog, the naïve café of the 3 cats",
    "user\nassistant\nsystem\n\n\n  the   thing:\n\tthat 🎭🎭 thinks",
] * 20


@lru_cache
def merging_text(trim_offsets: bool = True) -> TextModel:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=True, trim_offsets=trim_offsets
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    markers = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")
    tokenizer.add_special_tokens(
        [AddedToken(marker, special=True, normalized=False) for marker in markers]
    )
    end = tokenizer.token_to_id("<|im_end|>")
    assert end is not None
    return TextModel(tokenizer, eos_ids=(end,), special_tokens={}, chat_template=CHATML)
