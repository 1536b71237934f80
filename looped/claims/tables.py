"""Published beside computed numbers: claims with their verdicts, counts, and φ by split.

A claim is *reproduced* if the computed number rounds to the published digits, *reproduced within
the reading* if the distance is within three standard errors of the figure's digitisation, and
*differs* otherwise, with a reason. A claim that the digitised runs cannot yield is *reported only*.
"""

from typing import Any

import numpy as np
import pandas as pd

from looped import accounting
from looped.claims.computed import COMPUTED, WHY, Computed
from looped.claims.studies import STUDIES, study_fit, study_se
from looped.registry import published
from looped.splits import SPLITS
from looped.studies.paper import d_model_of_width, paper_config

REPRODUCED, WITHIN_READING = "reproduced", "reproduced within the reading"
DIFFERS, REPORTED = "differs", "reported only"
READING_ERRORS = 3.0


def claims_table() -> pd.DataFrame:
    """All claims with the computed number, the difference and the verdict.

    Returns:
        One row per claim: id, section, quantity, published, ours (the computed number), difference,
        unit, verdict, why, source, kind; value, low, high as printed; the computed ours_value,
        ours_low, ours_high, and their reading_se. `difference` is computed minus published, for the
        number with the largest difference in units of its last printed digit.
    """
    rows = [_row(claim) for claim in published.claims().to_dict("records")]
    return pd.DataFrame(rows)


def split_table() -> pd.DataFrame:
    """φ of every study under every split, with the published value.

    Returns:
        One row per study and split: study, split, phi, objective, r2, n_runs, published, printed
        (the published value as text, with its digits), reproduced.
    """
    printed = published.claims().set_index("id")["value"]
    rows = []
    for study, (claim, selection) in STUDIES.items():
        for split in SPLITS:
            fit = study_fit(split=split, **selection)
            computed = Computed(fit.params["phi"], se=study_se(**selection)["phi"])
            _, _, verdict = _compare(printed[claim], computed.value, computed)
            rows.append(
                {
                    "study": study,
                    "split": split,
                    "phi": fit.params["phi"],
                    "objective": fit.objective,
                    "r2": fit.r2,
                    "n_runs": fit.n_runs,
                    "published": float(printed[claim]),
                    "printed": printed[claim],
                    "reproduced": verdict != DIFFERS,
                }
            )
    return pd.DataFrame(rows)


def published_range(claim: str) -> tuple[float, float]:
    """The ends (low, high) of a published range, such as `phi_interval`."""
    row = published.claims().set_index("id").loc[claim]
    return float(row["low"]), float(row["high"])


def count_table() -> pd.DataFrame:
    """Computed and published counts for each recurrence and width of the paper.

    The published FLOPs are logarithms of numbers with five significant digits, so both are text
    with five digits.

    Returns:
        n_recur, d_model, n_params, log_n_params_error (computed minus published), flops_computed,
        flops_published (training FLOPs per token, as text).
    """
    rows = []
    for count in published.counts().itertuples():
        config = paper_config(d_model_of_width(count.width), count.n_recur)
        rows.append(
            {
                "n_recur": count.n_recur,
                "d_model": config.d_model,
                "n_params": accounting.n_params(config),
                "log_n_params_error": np.log(accounting.n_params(config)) - count.log_n_params,
                "flops_computed": f"{accounting.flops_per_token(config):.4e}",
                "flops_published": f"{np.exp(count.log_flops_per_token):.4e}",
            }
        )
    return pd.DataFrame(rows)


def printed_unit(text: str) -> float:
    """The unit of the last significant digit of a printed number: 0.459 -> 0.001, 410 -> 10."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, decimals = mantissa.partition(".")
    scale = 10.0 ** int(exponent or 0)
    if decimals:
        return scale * 10.0 ** -len(decimals)
    digits = whole.lstrip("+-")
    zeros = len(digits) - len(digits.rstrip("0")) if digits.strip("0") else 0
    return scale * 10.0**zeros


def _row(claim: dict[str, str]) -> dict[str, Any]:
    printed = {name: claim[name] for name in ("value", "low", "high") if claim[name]}
    compute = COMPUTED.get(claim["id"])
    computed = Computed() if compute is None else compute()
    bound = set(printed) == {"high"}
    numbers = {name: getattr(computed, name) for name in printed}
    compared = [_compare(text, numbers[name], computed, bound) for name, text in printed.items()]
    difference, _, verdict = (
        max(compared, key=lambda row: row[1]) if compute else (np.nan, np.nan, REPORTED)
    )
    digits = {name: _to_digits(numbers[name], text) for name, text in printed.items()}
    return {
        **{name: claim[name] for name in ("id", "section", "quantity")},
        "published": _written(printed),
        "ours": _written(digits) if compute else "",
        "difference": difference,
        "unit": claim["unit"],
        "verdict": verdict,
        "why": WHY.get(claim["id"], lambda: "")() if verdict == DIFFERS else "",
        **{name: claim[name] for name in ("source", "kind", "value", "low", "high")},
        **{f"ours_{name}": getattr(computed, name) for name in ("value", "low", "high")},
        "reading_se": computed.se,
    }


def _compare(
    text: str, number: float, computed: Computed, bound: bool = False
) -> tuple[float, float, str]:
    """Computed minus published, its absolute value in printed units, and the verdict.

    Every number below a published bound ("at most") reproduces it.
    """
    difference, unit = number - float(text), printed_unit(text)
    excess = (difference if bound else abs(difference)) - computed.rounding * unit
    if excess <= 1e-9 * unit:
        verdict = REPRODUCED
    else:
        verdict = WITHIN_READING if excess <= READING_ERRORS * computed.se else DIFFERS
    return difference, abs(difference) / unit, verdict


def _written(numbers: dict[str, str]) -> str:
    """The text of one cell: 0.459 [0.41, 0.53], [0.03, 0.06], or at most 0.006."""
    value, low, high = (numbers.get(name, "") for name in ("value", "low", "high"))
    if low and high:
        return f"{value} [{low}, {high}]".strip()
    return value or f"at most {high}"


def _to_digits(number: float, like: str) -> str:
    """The number as text, with one more digit than the printed one."""
    mantissa, power, _ = like.lower().partition("e")
    if power:
        return f"{number:.{len(mantissa.partition('.')[2]) + 1}e}"
    return f"{number:.{max(0, 1 - round(np.log10(printed_unit(like))))}f}"
