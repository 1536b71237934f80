"""`looped data prepare | info | verify`: corpora on disk."""

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from looped.cli import group, show
from looped.cli import options as opt
from looped.data.corpus import Corpus
from looped.data.prepare import prepare_corpus
from looped.data.sources import SOURCES
from looped.errors import pick

app = group.new_group("Prepare and inspect corpora: packed rows of tokens that runs read.")

Folder = Annotated[Path, typer.Argument(help="Folder of the corpus.")]


@app.command("prepare")
def prepare_command(
    source: Annotated[str, typer.Option(help=f"One of {', '.join(SOURCES)}.")] = "laptop",
    tokens: Annotated[float | None, typer.Option(help="Of training; default: all.")] = None,
    vocab_size: Annotated[int | None, typer.Option(help="Of a tokenizer to train.")] = None,
    seq_len: Annotated[int | None, typer.Option(help="Default: as the source's recipe.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder; default: in the user's cache.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="A tokenizer.json, or a name on the Hugging Face hub.")
    ] = None,
    path: Annotated[
        list[str] | None,
        typer.Option(help="Own text files or folders; a folder of Parquet files (repeatable)."),
    ] = None,
) -> None:
    """Prepare a corpus, or resume an interrupted preparation."""
    of_kind = pick("--source", source, SOURCES)
    where = path[0] if path and len(path) == 1 else path
    n_tokens = opt.whole("--tokens", tokens)
    try:
        with show.progress("validation, then training", "tokens") as progress:
            made = of_kind(path=where, tokenizer=tokenizer)
            corpus = prepare_corpus(
                made,
                seq_len=seq_len,
                vocab_size=vocab_size,
                n_tokens=n_tokens,
                out=out,
                progress=progress,
            )
    except KeyboardInterrupt:
        group.fail(
            "stopped; complete shards are kept, run the same command to resume", group.INTERRUPTED
        )
    if tokens and corpus.manifest["train"]["tokens"] < tokens:
        found = corpus.manifest["train"]["tokens"]
        group.warn([f"the source has {found:,} tokens of training, not {tokens:,.0f}"])
    _print(corpus)


@app.command("info")
def info_command(folder: Folder, as_json: opt.Json = False) -> None:
    """Print the contents of a corpus (--json: its manifest)."""
    corpus = Corpus.open(folder)
    if as_json:
        show.print_json(corpus.manifest)
    else:
        _print(corpus)


@app.command("verify")
def verify_command(folder: Folder) -> None:
    """Read a whole corpus and compare its hashes."""
    corpus = Corpus.open(folder)
    corpus.verify()
    print(f"{folder}: every shard is as it was written, SHA-256 {corpus.sha256}")


def _print(corpus: Corpus) -> None:
    frame = pd.DataFrame(
        {
            "split": split,
            "rows": counts["rows"],
            "tokens": counts["tokens"],
            "documents": counts["documents"],
            "bytes/token": _bytes_per_token(counts),
            "discarded": f"{counts['discarded_share']:.1%}",
            "shards": len(counts["shards"]),
        }
        for split in ("train", "validation")
        for counts in [corpus.manifest[split]]
    )
    vocabulary = f"{corpus.vocab_size:,} tokens, rows of {corpus.seq_len:,} + 1"
    show.print_table(frame, f"{corpus.source}: vocabulary of {vocabulary}")
    for part in corpus.manifest["licences"]:
        print(f"{part['what']}: {part['licence']} ({part['origin']})")
    print(f"SHA-256 {corpus.sha256}\n{corpus.folder}")


def _bytes_per_token(counts: dict) -> float | None:
    if counts["text_bytes"] is None:
        return None
    return counts["text_bytes"] / (counts["encoded_tokens"] - counts["documents"])
