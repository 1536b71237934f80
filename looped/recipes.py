"""Complete specs of runs, by name. A recipe is a function that returns a `RunSpec`."""

from collections.abc import Callable

from looped import accounting, transfer
from looped.config import ModelConfig, d_model_of_width, paper_config, require_whole
from looped.errors import ConfigError
from looped.spec import RunSpec, TrainConfig

LAPTOP_SHARED = 8
"""Layers that the loop block of the laptop's stacks executes."""

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
    """A run that one processor core finishes in about two minutes.

    Ten executed layers (1 + 8 + 1), rows of 256 tokens, batches of 2,048, the `laptop` corpus.
    Without budget and tokens it reads half a million tokens. The optimisers are the paper's; the
    rate of MuonH is that of the sweep `laptop-lr-sweep`, and the unembedding, which starts at a
    standard deviation of 0.001 and has few steps to grow, learns four times as fast.

    Raises:
        ConfigError: an r that does not divide 8, or a width without a head size.
    """
    require_whole("n_recur", n_recur, 1)
    if LAPTOP_SHARED % n_recur:
        raise ConfigError(
            f"n_recur: got {n_recur}, expected a divisor of {LAPTOP_SHARED}, so that the depth "
            "stays the same"
        )
    heads = [head for head in (32, 24, 16) if d_model % head == 0]
    if d_model < 1 or not heads:
        raise ConfigError(f"d_model: got {d_model}, expected a multiple of 16 or 24")
    model = ModelConfig(
        d_model=d_model,
        d_head=heads[0],
        n_recur=n_recur,
        n_prelude=1,
        n_loop=LAPTOP_SHARED // n_recur,
        n_coda=1,
        variant=variant or ("linear" if n_recur > 1 else "none"),
        bptt=bptt,
        vocab_size=2048,
        seq_len=256,
    )
    if budget is None and n_tokens is None:
        n_tokens = LAPTOP_TOKENS
    recipe = {"batch_rows": 8, "lr": 0.03, "lr_unembed": 0.016} | LAPTOP_REFERENCE | train
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
