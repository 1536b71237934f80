"""Transfer of learning rates from one scale to another, as pure functions.

    width     AdamW rates scale with (d_model / d_ref)^-½, the paper's use of muP (section 4);
              MuonH rates do not change, since its steps are relative to the norm of each matrix
    batch     all rates scale with (batch / batch_ref)^0.558          (HyperP, arXiv 2603.28743)
    horizon   MuonH rates scale with (tokens / tokens_ref)^-0.32      (HyperP)

All runs that are compared execute the same depth, so there is no rule for depth.
"""

from looped.spec import RunSpec

WIDTH_EXPONENT = -0.5
BATCH_EXPONENT = 0.558
HORIZON_EXPONENT = -0.32


def width_factor(d_model: float, ref_d_model: float | None) -> float:
    """Factor of AdamW rates for the step from width `ref_d_model` to `d_model`; None: 1."""
    return _power(d_model, ref_d_model, WIDTH_EXPONENT)


def batch_factor(batch_tokens: float, ref_batch_tokens: float | None) -> float:
    """Factor of all rates for the step from batches of `ref_batch_tokens` to `batch_tokens`."""
    return _power(batch_tokens, ref_batch_tokens, BATCH_EXPONENT)


def horizon_factor(n_tokens: float, ref_tokens: float | None) -> float:
    """Factor of MuonH rates for the step from `ref_tokens` to `n_tokens` training tokens."""
    return _power(n_tokens, ref_tokens, HORIZON_EXPONENT)


def _power(size: float, reference: float | None, exponent: float) -> float:
    return 1.0 if reference is None else (size / reference) ** exponent


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
    """Factor of all rates at a step, counted from 0: linear from 1 to `lr_final`, no warm-up."""
    return 1.0 - (1.0 - lr_final) * step / n_steps
