"""What the tests of figures share: small tables to draw, and ways to read a chart back."""

import io
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import vl_convert

import looped
from looped import accounting
from looped.figures.render import VEGA_LITE

STUDIES = pd.DataFrame(
    {
        "study": ["joint"] * 2 + ["low half"] * 2,
        "split": ["fitted", "stated"] * 2,
        "phi": [0.46, 0.43, 0.44, 0.42],
        "published": [0.459, 0.459, np.nan, np.nan],
    }
)
PREDICTIONS = pd.DataFrame(
    {
        "fit": ["joint law", "law per r"] * 2,
        "quantity": ["Loss"] * 2 + ["Gap"] * 2,
        "predicted": [2.11, 2.08, 0.05, 0.08],
        "low": [2.08, 2.06, 0.04, -0.06],
        "high": [2.15, 2.28, 0.053, 0.18],
        "reported": [2.047] * 2 + [np.nan] * 2,
    }
)
WIDTH_GAPS = pd.DataFrame(
    {
        "d_model": [768, 768, 2176, 2176],
        "n_recur": 4,
        "n_tokens": [1e9, 7e9, 2.5e9, 4.7e10],
        "gap": [0.07, 0.085, 0.035, 0.061],
        "source": ["digitised"] * 3 + ["published"],
    }
)
TASK_GAPS = pd.DataFrame(
    {
        "axis": ["knowledge", "knowledge", "reading", "reading"],
        "task": ["TriviaQA", "TriviaQA", "CoQA", "CoQA"],
        "n_recur": [2, 8, 2, 8],
        "gap": [0.095, 0.246, -0.033, 0.010],
        "share": [0.064, 0.166, -0.029, 0.009],
    }
)
TASK_LOSSES = pd.DataFrame(
    {
        "panel": ["copy"] * 2 + ["assign"] * 2,
        "n_recur": [1, 4] * 2,
        "val_loss": [4.2, 4.3] * 2,
        "loss": [8.5, 8.2, 4.4, 4.9],
        "se": 0.1,
        "chance_listed": [1.9, 1.9, 1.4, 1.4],
        "chance_any": [2.9, 2.9, 2.8, 2.8],
        "source": "measured",
    }
)
PROFILE = pd.DataFrame({"phi": [0, 0.5, 1], "objective": [4.0, 2.0, 8.0], "r2": [0.9, 0.99, 0.8]})


def optima(fit, recurrences=(1, 2, 4, 8)):
    configs = [looped.paper_config(128, n_recur) for n_recur in recurrences]
    budgets = [1e18, 1e19]
    return pd.concat([fit.law.optimal(budgets, config) for config in configs])


def sections():
    rows = [
        {"n_recur": n_recur, "section": section, "value": value}
        for n_recur in (1, 2)
        for section, value in accounting.params_by_section(
            looped.paper_config(640, n_recur)
        ).items()
    ]
    return pd.DataFrame(rows)


def ratios():
    rows = [(1, "parameters", 1.0), (4, "parameters", 0.41), (1, "FLOPs", 1.0), (4, "FLOPs", 1.03)]
    return pd.DataFrame(rows, columns=["n_recur", "quantity", "ratio"])


def drawn_of(runs, fit) -> SimpleNamespace:
    """Runs with all that figures draw of them: fit, minima, a small bootstrap, optima."""
    boot = looped.bootstrap(runs, fit, resamples=12, starts=5, seed=0)
    minima = looped.isoflop_minima(runs)
    return SimpleNamespace(runs=runs, fit=fit, minima=minima, boot=boot, optimal=optima(fit))


def spec_of(chart) -> dict:
    """The chart's specification, checked: valid Vega-Lite and JSON, and Vega can compile it."""
    spec = chart.to_dict()
    text = json.dumps(spec, allow_nan=False)
    assert vl_convert.vegalite_to_vega(text, vl_version=VEGA_LITE)["marks"]
    return spec


def csv_of(chart) -> pd.DataFrame:
    text = spec_of(chart)["usermeta"]["looped"]["csv"]
    return pd.read_csv(io.StringIO(text), keep_default_na=True)


def drawn_text(chart) -> str:
    """The SVG that Vega draws."""
    return vl_convert.vegalite_to_svg(spec_of(chart), vl_version=VEGA_LITE)


def layers():
    """Executed layers of a plain stack, and of one whose first two recurrences get no gradient."""
    configs = {"r = 1": looped.paper_config(640, 1), "cut": looped.paper_config(640, 4, bptt=2)}
    return pd.DataFrame(
        [
            {"stack": stack} | layer
            for stack, config in configs.items()
            for layer in accounting.executed_layers(config)
        ]
    )


def curves():
    return pd.DataFrame(
        {
            "n_recur": [1, 1, 4, 4],
            "tokens": [2048, 4096] * 2,
            "loss": [7.6, 6.0, 7.7, 6.1],
            "val_loss": [6.1, 6.1, 6.2, 6.2],
            "val_loss_se": 0.01,
        }
    )


def sweep():
    rates = [0.01, 0.02, 0.04]
    return pd.DataFrame(
        {"n_recur": [1] * 3 + [4] * 3, "lr": rates * 2, "val_loss": [4.4, 4.3, 4.35] * 2}
    )
