"""The tokenizer of a corpus: a byte-level BPE trained on its texts, or one that is given.

BOS         the mark of a document's beginning, a token that no text turns into
vocab_size  tokens, BOS among them
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from looped.extras import need

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BOS = "<|bos|>"
BOS_NAMES = (BOS, "<s>")
LEAST_VOCAB = 257  # one token a byte, and BOS
SAMPLE_CHARS = 100_000_000  # of the texts; more of them hardly change the merges


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> "Tokenizer":
    """Byte-level BPE with GPT-2's split into words; the same texts give the same tokenizer.

    Raises:
        ValueError: a vocabulary below 257, or above what the texts' words can give.
    """
    if vocab_size < LEAST_VOCAB:
        raise ValueError(f"vocab_size: got {vocab_size}, expected at least {LEAST_VOCAB}")
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
    """Tokenizer of a `tokenizer.json`, or of a repository of the Hugging Face hub by its name.

    Raises:
        ValueError: no such file, no tokenizer in it, or no way to the hub.
    """
    hf = need("tokenizers")
    file = Path(where) / "tokenizer.json" if Path(where).is_dir() else Path(where)
    try:
        if file.is_file():
            return hf.Tokenizer.from_file(str(file))
        return hf.Tokenizer.from_pretrained(str(where))
    except Exception as error:  # the library raises no narrower class
        raise ValueError(
            f"no tokenizer from {str(where)!r}: {error}. Name a tokenizer.json file; of a "
            "repository of the Hugging Face hub, the hub must be reachable and, where the "
            "repository is gated as meta-llama's are, its terms accepted"
        ) from error


def bos_id(tokenizer: "Tokenizer", name: str | None = None) -> int:
    """Id of the token that marks the beginning, by the given name or by one of the usual two."""
    for candidate in (name,) if name else BOS_NAMES:
        if (found := tokenizer.token_to_id(candidate)) is not None:
            return found
    wanted = repr(name) if name else " or ".join(map(repr, BOS_NAMES))
    raise ValueError(f"the tokenizer has no token {wanted} to mark the beginning; name another")


def token_ids(tokenizer: "Tokenizer", texts: list[str]) -> list[list[int]]:
    """Tokens of each text, without BOS; the name of a special token in a text is plain text."""
    tokenizer.encode_special_tokens = True
    return [found.ids for found in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def tokenizer_bytes(tokenizer: "Tokenizer") -> bytes:
    """The tokenizer as its canonical file."""
    return (tokenizer.to_str(pretty=True) + "\n").encode()


def sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _sample(texts: Iterable[str]) -> Iterator[str]:
    room = SAMPLE_CHARS
    for text in texts:
        yield text[:room]
        room -= len(text)
        if room <= 0:
            return
