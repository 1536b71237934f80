"""Tables of counts: parameters, FLOPs and layers of architectures, from closed forms."""

from collections.abc import Mapping, Sequence

import pandas as pd

from looped import accounting
from looped.config import ModelConfig
from looped.fitting.result import FitResult
from looped.registry.stacks import runs_at_width
from looped.studies.paper import paper_config


def layers(configs: Mapping[str, ModelConfig]) -> pd.DataFrame:
    """Executed layers of named stacks, one row a layer, for `looped.figures.schematic`."""
    rows = [
        {"stack": name} | layer
        for name, config in configs.items()
        for layer in accounting.executed_layers(config)
    ]
    return pd.DataFrame(rows)


def stacks(configs: Sequence[ModelConfig]) -> pd.DataFrame:
    """Sizes of architectures: n_recur, layers by section and executed, injection, sizes."""
    columns = {
        "n_recur": "n_recur",
        "n_prelude": "prelude",
        "n_loop": "loop",
        "n_coda": "coda",
        "n_layers": "executed",
        "variant": "injection",
        "d_head": "head size",
        "n_vocab": "vocabulary",
        "seq_len": "context",
    }
    return pd.DataFrame(
        [{shown: getattr(config, name) for name, shown in columns.items()} for config in configs]
    )


def counts(configs: Sequence[ModelConfig]) -> pd.DataFrame:
    """Parameters, FLOPs and cache bytes of `looped.counts`, one row an architecture."""
    rows = [{"n_recur": config.n_recur} | accounting.counts(config) for config in configs]
    return pd.DataFrame(rows).astype(float).astype({"n_recur": int})


def stored_by_section(configs: Sequence[ModelConfig]) -> pd.DataFrame:
    """Stored parameters of each section that has any: section, n_recur, value."""
    sections = pd.DataFrame(
        {config.n_recur: accounting.params_by_section(config) for config in configs}
    )
    stored = sections.rename_axis("section").reset_index().melt("section", var_name="n_recur")
    return stored[stored["value"] > 0]


def params_by_width(checked: pd.DataFrame) -> pd.DataFrame:
    """Unique parameters N in millions: d_model, and a column "r = 4" for each recurrence.

    Args:
        checked: of `looped.count_table`.
    """
    widths = checked.pivot(index="d_model", columns="n_recur", values="n_params") / 1e6
    return widths.rename(columns="r = {}".format).reset_index()


def count_agreement(checked: pd.DataFrame) -> dict[str, int]:
    """Number of published counts, and of those that the closed forms reproduce.

    Args:
        checked: of `looped.count_table`.

    Returns:
        n_published, n_equal (log N to nine decimals), flops_equal (five significant digits).
    """
    return {
        "n_published": len(checked),
        "n_equal": int((checked["log_n_params_error"].abs() < 1e-9).sum()),
        "flops_equal": int((checked["flops_published"] == checked["flops_computed"]).sum()),
    }


def ratios(configs: Sequence[ModelConfig], fit: FitResult) -> pd.DataFrame:
    """Sizes relative to those of the first architecture: n_recur, quantity, ratio.

    The quantities are forward FLOPs, unique parameters, and effective parameters of `fit`.
    """
    at = pd.concat([runs_at_width(config, config.d_model, n_tokens=1.0) for config in configs])
    sizes = pd.DataFrame(
        {
            "n_recur": at["n_recur"],
            "Forward FLOPs": at["flops_per_token"] / 3,
            "Unique parameters": at["n_params"],
            "Effective parameters": fit.law.n_eff(at),
        }
    ).set_index("n_recur")
    relative = (sizes / sizes.iloc[0]).reset_index()
    return relative.melt("n_recur", var_name="quantity", value_name="ratio")


def ratios_by_recurrence(ratios: pd.DataFrame) -> pd.DataFrame:
    """The rows of `ratios` as a wide table: quantity, and a column "r = 4" for each recurrence."""
    wide = ratios.pivot(index="quantity", columns="n_recur", values="ratio")
    return wide.rename(columns="r = {}".format).reset_index()


def truncation_savings(d_model: int, n_recur: Sequence[int]) -> pd.DataFrame:
    """Effect of truncating the gradient to the last ceil(r / 2) recurrences of paper stacks.

    Returns:
        n_recur, FLOPs saved (share of the training FLOPs per token), more tokens (relative gain
        at a fixed budget); only recurrences that save FLOPs.
    """
    rows = []
    for r in n_recur:
        full = accounting.flops_per_token(paper_config(d_model, r))
        cut = accounting.flops_per_token(paper_config(d_model, r, bptt=-(-r // 2)))
        rows.append({"n_recur": r, "FLOPs saved": 1 - cut / full, "more tokens": full / cut - 1})
    savings = pd.DataFrame(rows)
    return savings[savings["FLOPs saved"] > 0].reset_index(drop=True)
