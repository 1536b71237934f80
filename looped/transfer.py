"""How a learning rate found at one scale carries over to another, as pure functions.

    width     AdamW rates go with (d_model / d_ref)^-½, muP as the paper uses it (section 4);
              MuonH rates stay, since its steps are relative to the norm of each matrix
    batch     every rate goes with (batch / batch_ref)^0.558          (HyperP, arXiv 2603.28743)
    horizon   MuonH rates go with (tokens / tokens_ref)^-0.32         (HyperP)

The depth executed is the same in all runs that are compared, so there is no rule for depth.
"""

from looped import accounting
from looped.config import ModelConfig, d_model_of_width, paper_config
from looped.spec import RunSpec

WIDTH_EXPONENT = -0.5
BATCH_EXPONENT = 0.558
HORIZON_EXPONENT = -0.32

PAPER_REFERENCE_WIDTH = 10  # s
PAPER_REFERENCE_TOKENS = 10  # per executed parameter


def width_factor(d_model: float, ref_d_model: float | None) -> float:
    """Factor of an AdamW rate from width `ref_d_model` to `d_model` (None: no change)."""
    return 1.0 if ref_d_model is None else (d_model / ref_d_model) ** WIDTH_EXPONENT


def batch_factor(batch_tokens: float, ref_batch_tokens: float | None) -> float:
    """Factor of every rate from batches of `ref_batch_tokens` to `batch_tokens` tokens."""
    return 1.0 if ref_batch_tokens is None else (batch_tokens / ref_batch_tokens) ** BATCH_EXPONENT


def horizon_factor(n_tokens: float, ref_tokens: float | None) -> float:
    """Factor of a MuonH rate from a run of `ref_tokens` to one of `n_tokens` training tokens."""
    return 1.0 if ref_tokens is None else (n_tokens / ref_tokens) ** HORIZON_EXPONENT


def learning_rates(spec: RunSpec) -> dict[str, float]:
    """Rates of the first step by parameter group: matrix, embed, unembed, norm, lanes."""
    train = spec.train
    batch = batch_factor(spec.batch_tokens, train.ref_batch_tokens)
    adamw = batch * width_factor(spec.model.d_model, train.ref_d_model)
    return {
        "matrix": train.lr * batch * horizon_factor(train.n_tokens, train.ref_tokens),
        "embed": train.lr_embed * adamw,
        "unembed": train.lr_unembed * adamw,
        "norm": train.lr_norm * adamw,
        "lanes": train.lr_lanes * adamw,
    }


def decay(step: int, n_steps: int, lr_final: float) -> float:
    """Factor of every rate at a step, from 0: linear from 1 towards `lr_final`, no warm-up."""
    return 1.0 - (1.0 - lr_final) * step / n_steps


def executed_params(config: ModelConfig) -> float:
    """N_once + r N_rec: parameters counted as often as they run, whatever a recurrence is worth."""
    return accounting.n_params_once(config) + config.n_recur * accounting.n_params_rec(config)


def paper_reference_tokens(n_recur: int) -> float:
    """The paper's T_ref: 10 tokens per executed parameter of its s = 10 reference (section 4).

    The reference of all looped runs is the stack with r = 4, that of the others the plain one.
    """
    reference = paper_config(d_model_of_width(PAPER_REFERENCE_WIDTH), 4 if n_recur > 1 else 1)
    return PAPER_REFERENCE_TOKENS * executed_params(reference)
