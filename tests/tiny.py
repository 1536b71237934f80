"""Runs of a second: a corpus of few words, and specs of the smallest models."""

from pathlib import Path

import numpy as np

import looped
from looped.config import ModelConfig
from looped.data.sources.files import OwnText

VOCAB, SEQ_LEN, STEPS = 280, 32, 12
WORDS = "the loop runs again over one block of layers and a state that it leaves behind".split()


def make_corpus(folder: Path):
    """A prepared corpus of sentences of few words."""
    rng = np.random.default_rng(0)
    for number in range(60):
        text = ". ".join(" ".join(rng.choice(WORDS, 8)) for _ in range(40))
        (folder / f"{number:02d}.txt").write_text(text)
    source = OwnText(folder, share=0.2)
    return looped.prepare_corpus(source, vocab_size=VOCAB, seq_len=SEQ_LEN, out=folder / "prepared")


def spec_of(*, steps=STEPS, model=None, **train) -> looped.RunSpec:
    """A run of `steps` steps of 128 tokens."""
    sizes = {"d_model": 16, "d_head": 8, "n_recur": 2, "n_prelude": 1, "n_loop": 1, "n_coda": 1}
    sizes |= {"variant": "linear", "vocab_size": VOCAB, "seq_len": SEQ_LEN} | (model or {})
    train = {"lr": 0.02} | train
    settings = looped.TrainConfig(n_tokens=4 * SEQ_LEN * steps, batch_rows=4, **train)
    return looped.RunSpec(model=ModelConfig(**sizes), train=settings, corpus="text")
