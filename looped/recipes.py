"""Complete specs of runs, by name. A recipe is a function that returns a `RunSpec`."""

from collections.abc import Callable

from looped import accounting, transfer
from looped.config import ModelConfig, d_model_of_width, paper_config
from looped.spec import RunSpec, TrainConfig

LAPTOP_TOKENS = 2**19
LAPTOP_REFERENCE = {
    "ref_d_model": d_model_of_width(transfer.PAPER_REFERENCE_WIDTH),  # AdamW: the paper's rates
    "ref_tokens": LAPTOP_TOKENS,
    "ref_batch_tokens": 2**11,
}


def paper_run(
    width: int,
    n_recur: int = 1,
    *,
    budget: float | None = None,
    n_tokens: int | None = None,
    variant: str | None = None,
    bptt: int | None = None,
    case: str = "baseline",
    **train,
) -> RunSpec:
    """A run of the paper's grid: its 20-layer stack, FineWeb-Edu, its recipe (section 4).

    Args:
        width: s of the paper; d_model is 64 s rounded up to a multiple of 128.
        n_recur: times r that the loop block runs.
        budget: nominal training FLOPs, from which the tokens follow; or give `n_tokens`.
        train: fields of `TrainConfig` that differ from the paper's.
    """
    model = paper_config(d_model_of_width(width), n_recur, variant, bptt)
    reference = {
        "ref_d_model": d_model_of_width(transfer.PAPER_REFERENCE_WIDTH),
        "ref_tokens": transfer.paper_reference_tokens(n_recur),
        "ref_batch_tokens": 262_144,
        "batch_rows": 128,
    }
    return run_at(model, budget, n_tokens, reference | train, "fineweb-edu", case)


def laptop_run(
    d_model: int = 64,
    n_recur: int = 4,
    *,
    budget: float | None = None,
    n_tokens: int | None = None,
    variant: str | None = None,
    bptt: int | None = None,
    case: str = "baseline",
    **train,
) -> RunSpec:
    """A run that one processor core finishes in about two minutes, with the paper's recipe.

    Ten executed layers (1 + 8 + 1), rows of 256 tokens, batches of 2,048, the `laptop` corpus.
    Without budget and tokens it reads half a million tokens.
    """
    model = ModelConfig(
        d_model=d_model,
        d_head=max(head for head in (16, 24, 32) if d_model % head == 0),
        n_recur=n_recur,
        n_prelude=1,
        n_loop=8 // n_recur,
        n_coda=1,
        variant=variant or ("linear" if n_recur > 1 else "none"),
        bptt=bptt,
        vocab_size=2048,
        seq_len=256,
    )
    if budget is None and n_tokens is None:
        n_tokens = LAPTOP_TOKENS
    # Short runs ask for a faster unembedding than the paper's: it starts at a std of 0.001.
    recipe = {"batch_rows": 8, "lr": 0.02, "lr_unembed": 0.016} | LAPTOP_REFERENCE | train
    return run_at(model, budget, n_tokens, recipe, "laptop", case)


RECIPES: dict[str, Callable[..., RunSpec]] = {"paper": paper_run, "laptop": laptop_run}


def run_at(model, budget, n_tokens, train, corpus, case) -> RunSpec:
    """Spec of a model trained for a budget in FLOPs or a number of tokens, one of the two."""
    if (budget is None) == (n_tokens is None):
        raise ValueError("give one of budget (FLOPs) and n_tokens")
    if n_tokens is None:
        n_tokens = accounting.tokens_at_budget(model, budget, train["batch_rows"] * model.seq_len)
    settings = TrainConfig(n_tokens=n_tokens, **train)
    return RunSpec(model=model, train=settings, corpus=corpus, case=case, budget=budget)
