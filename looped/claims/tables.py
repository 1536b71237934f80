"""Published numbers beside ours: the claims with computed verdicts, the counts, φ by split.

A claim is *reproduced* if ours rounds to the published digits, *reproduced within the reading* if
the distance is within three standard errors of the figure's digitisation, and *differs* otherwise,
with a reason. What the data at hand cannot yield is *reported only*.
"""

import numpy as np
import pandas as pd

from looped import accounting
from looped.claims.ours import OURS, WHY, Ours
from looped.claims.studies import STUDIES, study_fit, study_se
from looped.registry import published
from looped.splits import SPLITS
from looped.studies.paper import d_model_of_width, paper_config

REPRODUCED, WITHIN_READING = "reproduced", "reproduced within the reading"
DIFFERS, REPORTED = "differs", "reported only"
READING_ERRORS = 3.0


def claims_table() -> pd.DataFrame:
    """All claims with ours, the difference and the verdict.

    Returns:
        One row a claim: id, section, quantity, published, ours, difference, unit, verdict, why,
        source, kind, and the numbers behind them (value, low, high as printed; ours_value,
        ours_low, ours_high, reading_se). `difference` is ours minus published, of the number that
        is farthest off in units of its last printed digit.
    """
    rows = [_row(claim) for claim in published.claims().to_dict("records")]
    return pd.DataFrame(rows)


def split_table() -> pd.DataFrame:
    """φ of every study under every split, beside the published value.

    Returns:
        One row a study and split: study, split, phi, objective, r2, n_runs, published, printed
        (the same with its digits, as text), reproduced.
    """
    printed = published.claims().set_index("id")["value"]
    rows = []
    for study, (claim, selection) in STUDIES.items():
        for split in SPLITS:
            found = study_fit(split=split, **selection)
            ours = Ours(found.params["phi"], se=study_se(**selection)["phi"])
            _, _, verdict = _apart(printed[claim], ours.value, ours)
            rows.append(
                {
                    "study": study,
                    "split": split,
                    "phi": found.params["phi"],
                    "objective": found.objective,
                    "r2": found.r2,
                    "n_runs": found.n_runs,
                    "published": float(printed[claim]),
                    "printed": printed[claim],
                    "reproduced": verdict != DIFFERS,
                }
            )
    return pd.DataFrame(rows)


def published_range(claim: str) -> tuple[float, float]:
    """Ends of a published range, such as that of `phi_interval`."""
    row = published.claims().set_index("id").loc[claim]
    return float(row["low"]), float(row["high"])


def count_table() -> pd.DataFrame:
    """Our counts beside the published ones, for each recurrence and width of the paper.

    The published FLOPs are logarithms of numbers rounded to five significant digits, and so both
    are given to five.

    Returns:
        n_recur, d_model, n_params, log_n_params_error (ours minus published), flops_ours,
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
                "flops_ours": f"{accounting.flops_per_token(config):.4e}",
                "flops_published": f"{np.exp(count.log_flops_per_token):.4e}",
            }
        )
    return pd.DataFrame(rows)


def printed_unit(text: str) -> float:
    """One unit of the last significant digit of a printed number: 0.459 -> 0.001, 410 -> 10."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, decimals = mantissa.partition(".")
    scale = 10.0 ** int(exponent or 0)
    if decimals:
        return scale * 10.0 ** -len(decimals)
    digits = whole.lstrip("+-")
    zeros = len(digits) - len(digits.rstrip("0")) if digits.strip("0") else 0
    return scale * 10.0**zeros


def _row(claim) -> dict:
    printed = {name: claim[name] for name in ("value", "low", "high") if claim[name]}
    compute = OURS.get(claim["id"])
    ours = Ours() if compute is None else compute()
    bound = set(printed) == {"high"}
    apart = [_apart(text, getattr(ours, name), ours, bound) for name, text in printed.items()]
    farthest = max(apart, key=lambda each: each[1]) if compute else (np.nan, np.nan, REPORTED)
    digits = {name: _to_digits(getattr(ours, name), text) for name, text in printed.items()}
    return {
        **{name: claim[name] for name in ("id", "section", "quantity")},
        "published": _written(printed),
        "ours": _written(digits) if compute else "",
        "difference": farthest[0],
        "unit": claim["unit"],
        "verdict": farthest[2],
        "why": WHY.get(claim["id"], lambda: "")() if farthest[2] == DIFFERS else "",
        **{name: claim[name] for name in ("source", "kind", "value", "low", "high")},
        **{f"ours_{name}": getattr(ours, name) for name in ("value", "low", "high")},
        "reading_se": ours.se,
    }


def _apart(text, number, ours, bound=False) -> tuple[float, float, str]:
    """Ours minus published, its size in printed units, and the verdict on this number.

    A published bound ("at most") is met by anything below it.
    """
    difference, unit = number - float(text), printed_unit(text)
    excess = (difference if bound else abs(difference)) - ours.rounding * unit
    if excess <= 1e-9 * unit:
        verdict = REPRODUCED
    else:
        verdict = WITHIN_READING if excess <= READING_ERRORS * ours.se else DIFFERS
    return difference, abs(difference) / unit, verdict


def _written(numbers: dict[str, str]) -> str:
    """One cell: 0.459 [0.41, 0.53], [0.03, 0.06], or at most 0.006."""
    value, low, high = (numbers.get(name, "") for name in ("value", "low", "high"))
    if low and high:
        return f"{value} [{low}, {high}]".strip()
    return value or f"at most {high}"


def _to_digits(number: float, like: str) -> str:
    """A number with one digit more than the printed one."""
    mantissa, power, _ = like.lower().partition("e")
    if power:
        return f"{number:.{len(mantissa.partition('.')[2]) + 1}e}"
    return f"{number:.{max(0, 1 - round(np.log10(printed_unit(like))))}f}"
