"""The tokenizer of a corpus: a byte-level BPE trained on its texts, or an existing one.

BOS         marks the beginning of a document; no text is encoded to this token
vocab_size  number of tokens, BOS included
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from looped.extras import need

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BOS = "<|bos|>"
BOS_NAMES = (BOS, "<s>")
MIN_VOCAB = 257  # one token for each byte, and BOS
SAMPLE_CHARS = 100_000_000  # of the texts; more hardly change the merges


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> "Tokenizer":
    """Byte-level BPE with GPT-2's pre-tokenisation; the same texts give the same tokenizer.

    Raises:
        ValueError: a vocabulary below 257, or larger than the texts allow.
    """
    if vocab_size < MIN_VOCAB:
        raise ValueError(f"vocab_size: got {vocab_size}, expected at least {MIN_VOCAB}")
    hf = need("tokenizers")
    tokenizer = hf.Tokenizer(hf.models.BPE())
    tokenizer.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = hf.decoders.ByteLevel()
    trainer = hf.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS],
        initial_alphabet=hf.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(texts), trainer)
    if (got := tokenizer.get_vocab_size()) < vocab_size:
        raise ValueError(
            f"vocab_size: got {vocab_size}, but the texts are too few for more than {got} tokens; "
            f"use at most {got}, or more text"
        )
    return tokenizer


def load_tokenizer(where: str | Path) -> "Tokenizer":
    """Tokenizer from a `tokenizer.json`, a folder that holds one, or a repository on the hub.

    Raises:
        ValueError: no such file, not a tokenizer, or the hub cannot be reached.
    """
    hf = need("tokenizers")
    file = Path(where) / "tokenizer.json" if Path(where).is_dir() else Path(where)
    try:
        if file.is_file():
            return hf.Tokenizer.from_file(str(file))
        return hf.Tokenizer.from_pretrained(str(where))
    except Exception as error:  # the library raises no narrower class
        raise ValueError(
            f"no tokenizer from {str(where)!r}: {error}. Name a tokenizer.json file, or a "
            "repository on the Hugging Face hub; the hub must be reachable and the terms of a "
            "gated repository, such as meta-llama's, accepted"
        ) from error


def bos_id(tokenizer: "Tokenizer") -> int:
    """Id of the BOS token: the first of `BOS_NAMES` that the tokenizer has.

    Raises:
        ValueError: the tokenizer has none of them.
    """
    for name in BOS_NAMES:
        if (token := tokenizer.token_to_id(name)) is not None:
            return token
    raise ValueError(
        f"the tokenizer has no token {' or '.join(map(repr, BOS_NAMES))} for BOS; use one that does"
    )


def token_ids(tokenizer: "Tokenizer", texts: list[str]) -> list[list[int]]:
    """Tokens of each text, without BOS; the name of a special token in a text is plain text."""
    tokenizer.encode_special_tokens = True
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def tokenizer_bytes(tokenizer: "Tokenizer") -> bytes:
    """Content of the tokenizer's canonical file."""
    return (tokenizer.to_str(pretty=True) + "\n").encode()


def _sample(texts: Iterable[str]) -> Iterator[str]:
    room = SAMPLE_CHARS
    for text in texts:
        yield text[:room]
        room -= len(text)
        if room <= 0:
            return
