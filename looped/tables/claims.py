"""Tables of the claims: how many have each verdict, which differ, and sources that disagree."""

from collections.abc import Sequence

import pandas as pd

from looped.fitting.result import FitResult
from looped.registry.stacks import runs_at_width
from looped.studies import get_grid


def verdict_counts(claims: pd.DataFrame, verdicts: Sequence[str]) -> pd.DataFrame:
    """Number of claims of each verdict, in the order of `verdicts`: verdict, claims."""
    counts = claims["verdict"].value_counts().reindex(verdicts, fill_value=0)
    return counts.rename("claims").reset_index()


def differing(claims: pd.DataFrame) -> pd.DataFrame:
    """Claims that the runs do not reproduce: quantity, published | ours, why."""
    rows = claims[claims["verdict"] == "differs"]
    numbers = rows["published"] + " | " + rows["ours"]
    return rows.assign(**{"published | ours": numbers})[["quantity", "published | ours", "why"]]


def printed_numbers(claims: pd.DataFrame, ids: Sequence[str]) -> dict[str, float]:
    """Printed values of claims by id.

    Raises:
        KeyError: an id without a claim.
    """
    values = claims.set_index("id")["value"]
    return {name: float(values[name]) for name in ids}


def predicted_pair(fit: FitResult) -> dict[str, float]:
    """Losses of the paper's large pair by a fit, nats per token: large_r1, large_r4, large_gap."""
    small, large = (
        fit.predict(
            runs_at_width(spec.model, spec.model.d_model, n_tokens=spec.train.n_tokens)
        ).item()
        for spec in get_grid("paper-extrapolation")
    )
    return {"large_r1": small, "large_r4": large, "large_gap": large - small}
