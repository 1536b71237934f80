"""Bring your own architecture: a new variant is one entry in each of two dicts, and counts follow.

A variant that neither dict has is a name in a table: its counts are in the table, so laws are
fitted to it by split `stated`.
"""

import pytest

import looped
from looped import accounting
from looped.studies.base import INJECTIONS
from looped.variants import VARIANTS, Variant, n_params_injection

pytestmark = pytest.mark.train


def test_every_variant_has_both_halves():
    pytest.importorskip("torch")
    from looped.model.variants import VARIANT_CLASSES

    assert list(VARIANT_CLASSES) == list(VARIANTS)
    assert set(INJECTIONS) == {name for name, variant in VARIANTS.items() if variant.loops}


@pytest.fixture
def gated(monkeypatch):
    """A variant with an injection [d, d], a gate [d] of each recurrence, and no truncation."""
    torch = pytest.importorskip("torch")
    from looped.model.variants import VARIANT_CLASSES
    from looped.model.variants.base import VariantModule

    class Gated(VariantModule):
        """u_t = W e + sigmoid(g_t) * h_{t-1}."""

        def __init__(self, config):
            super().__init__(config)
            self.weight = torch.nn.Parameter(torch.empty(config.d_model, config.d_model))
            self.gates = _Gates(config)

        @torch.no_grad()
        def init_weights(self):
            torch.nn.init.eye_(self.weight)
            self.gates.weight.zero_()

        def read(self, state, e_BTD, step):
            return e_BTD @ self.weight.T + self.gates.weight[step].sigmoid() * state

    class _Gates(torch.nn.Module):
        group = "lanes"

        def __init__(self, config):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(config.n_recur, config.d_model))

    entry = Variant(
        injection=lambda d: d**2,
        lanes=lambda config, d: config.n_recur * d,
        extra_flops=lambda config, d: 2 * d,
        injects=True,
        any_n_recur=False,
        no_truncation="passes through the gates of every recurrence",
    )
    monkeypatch.setitem(VARIANTS, "gated", entry)
    monkeypatch.setitem(VARIANT_CLASSES, "gated", Gated)
    return "gated"


def test_a_new_variant_is_counted_as_its_tensors_are(gated):
    from looped.model.looped_lm import LoopedLM

    config = looped.laptop_run(32, 4, variant=gated).model
    model = LoopedLM(config)
    stored = sum(p.numel() for p in model.parameters())
    assert stored == sum(accounting.params_by_section(config).values())
    assert accounting.params_by_section(config)["lanes"] == 4 * 32
    assert n_params_injection(gated, 32) == accounting.params_by_section(config)["injection"]
    additive = looped.laptop_run(32, 4, variant="additive").model
    extra = accounting.flops_per_token(config) - accounting.flops_per_token(additive)
    assert extra == 3 * 4 * (2 * 32**2 + 2 * 32)
    assert sum(layer["injection"] for layer in accounting.executed_layers(config)) == 4


def test_what_a_new_variant_does_not_support_is_refused_with_its_reason(gated):
    from looped.model.looped_lm import LoopedLM

    with pytest.raises(looped.ConfigError, match="the gates of every recurrence; use bptt=None"):
        looped.laptop_run(32, 4, variant=gated, bptt=2)
    model = LoopedLM(looped.laptop_run(32, 4, variant=gated).model)
    with pytest.raises(looped.ConfigError, match=r"'gated'.* for the trained n_recur only"):
        model.hidden(model.embed.weight[:1, :4].long(), n_recur=2)


def test_a_new_variant_trains_to_a_record_that_is_a_row_of_runs(gated, tmp_path):
    from tiny import make_corpus, spec_of

    folder = tmp_path / "run"
    spec = spec_of(model={"variant": gated})
    record = looped.train(spec, folder, corpus=make_corpus(tmp_path), device="cpu")
    losses = [line["loss"] for line in looped.read_metrics(folder)]
    assert losses[-1] < losses[0] - 0.3
    (row,) = looped.load_runs(folder).itertuples()
    assert (row.variant, row.n_params) == (gated, accounting.n_params(spec.model))
    assert row.val_loss == record.result.val_loss


def renamed(runs):
    return runs.assign(variant=runs["variant"].replace("linear", "gated"))


def test_a_table_with_a_variant_of_any_name_is_read_fitted_and_compared(runs, tmp_path):
    path = tmp_path / "runs.csv"
    renamed(runs).to_csv(path, index=False)
    table = looped.load_runs(path)
    assert set(table["variant"]) == {"none", "gated"}
    fit, known = (looped.fit(each, split="stated", starts=20) for each in (table, runs))
    assert fit.params == pytest.approx(known.params, rel=1e-6)
    shift = looped.delta_phi(runs, table, split="stated", starts=5, resamples=5)
    assert shift.delta_phi == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("split", ["fitted", "once", "none"])
def test_a_split_that_counts_the_injection_refuses_a_variant_without_counts(split, runs):
    with pytest.raises(looped.ConfigError, match=r"got 'gated', expected one of .*split='stated'"):
        looped.fit(renamed(runs), split=split, starts=5)


def test_a_new_variant_is_split_as_its_injection_is_counted(gated, runs):
    table = renamed(runs)
    moved = looped.split_params(table, "once")["n_params_once"] - table["n_params_once"]
    looping = (table["n_recur"] > 1).astype(float)
    assert moved.tolist() == (looping * table["d_model"].astype(float) ** 2).tolist()
