"""The optimisers of a run: who updates what, at which rate, and that a file keeps them exactly."""

# ruff: noqa: E402 (what needs torch is imported once it is known to be there)

import copy
import io

import pytest

torch = pytest.importorskip("torch")

from looped import ConfigError, ModelConfig, transfer
from looped.model.looped_lm import GROUPS, LoopedLM
from looped.studies.base import run_at
from looped.training.muonh import MuonH
from looped.training.optimizers import build_optimizers

pytestmark = pytest.mark.train

STEPS = 10


def small_run(variant="linear", n_recur=2, **train):
    config = ModelConfig(
        d_model=16,
        d_head=8,
        n_recur=n_recur,
        n_prelude=1,
        n_loop=2,
        n_coda=1,
        variant=variant,
        vocab_size=32,
        seq_len=8,
    )
    settings = {"batch_rows": 4, "ref_d_model": 64, "ref_tokens": 1e4, "ref_batch_tokens": 128}
    spec = run_at(config, None, STEPS * 32, settings | train, "laptop", "baseline")
    model = LoopedLM(config, attention="sdpa", seed=1)
    return model, build_optimizers(model, spec), spec


def train(model, optimizers, steps):
    losses = []
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        rows = torch.randint(0, 32, (4, 9), generator=generator) // 2 * 2
        optimizers.set_rates(step)
        optimizers.zero_grad()
        loss = model.loss(rows)
        loss.backward()
        optimizers.step()
        losses.append(loss.item())
    return losses


def equal_weights(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(p, q) for p, q in pairs)


@pytest.mark.parametrize("variant", ["none", "linear", "additive", "hyperconnect"])
def test_every_parameter_is_updated_by_one_optimiser_at_its_groups_rate(variant):
    model, optimizers, spec = small_run(variant, n_recur=1 if variant == "none" else 2)
    seen = {}
    for part in optimizers.parts.values():
        for group in part.param_groups:
            assert group["lr"] == transfer.learning_rates(spec)[group["group"]]
            seen |= {p: (group["group"], type(part)) for p in group["params"]}
    wanted = {
        p: (group, MuonH if group == "matrix" else torch.optim.AdamW)
        for group, params in model.parameter_groups().items()
        for p in params.values()
    }
    assert seen == wanted
    assert set(seen) == set(model.parameters())


def test_adamw_is_the_papers():
    _, optimizers, spec = small_run(betas=(0.7, 0.9), eps=1e-9)
    for group in optimizers.parts["adamw"].param_groups:
        assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.7, 0.9), 1e-9, 0)
    (muonh,) = optimizers.parts["muonh"].param_groups
    assert muonh["momentum"] == spec.train.momentum


def test_rates_of_all_groups_fall_on_one_line():
    _, optimizers, spec = small_run("hyperconnect", lr_final=0.2)
    first = transfer.learning_rates(spec)
    assert set(first) == set(GROUPS)
    for step, factor in [(0, 1.0), (5, 0.6), (9, 0.28), (10, 0.2)]:
        optimizers.set_rates(step)
        assert optimizers.rates() == pytest.approx({k: factor * v for k, v in first.items()})


def test_groups_without_parameters_have_no_rate():
    _, optimizers, _ = small_run("linear")
    assert set(optimizers.rates()) == set(GROUPS) - {"lanes"}


def test_rate_of_each_group_moves_its_parameters_and_no_others():
    model, optimizers, _ = small_run("hyperconnect")
    train(model, optimizers, range(2))  # the lanes' first gradients and Adam's moments
    for chosen, params in model.parameter_groups().items():
        before = copy.deepcopy(model.state_dict())
        for part in optimizers.parts.values():
            for group in part.param_groups:
                group["lr"] = 0.01 if group["group"] == chosen else 0.0
        optimizers.step()
        moved = {n for n, p in model.named_parameters() if not close(p, before[n])}
        assert moved <= set(params), chosen
        assert moved, chosen


def close(p, q):
    """Equal up to the projection's rounding."""
    return torch.allclose(p, q, rtol=1e-6, atol=0)


def test_loss_falls():
    model, optimizers, _ = small_run(lr=0.05, lr_unembed=0.05, ref_tokens=None)
    losses = train(model, optimizers, range(STEPS))
    assert losses[-1] < losses[0] - 0.3  # half of the tokens never occur: ln 2 can be learned


def test_resumed_run_has_the_same_bits():
    model, optimizers, _ = small_run("hyperconnect")
    train(model, optimizers, range(4))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizers": optimizers.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed, others, _ = small_run("hyperconnect")
    resumed.load_state_dict(saved["model"])
    others.load_state_dict(saved["optimizers"])
    assert train(model, optimizers, range(4, 8)) == train(resumed, others, range(4, 8))
    assert equal_weights(model, resumed)


def test_state_of_momentum_matters_to_the_resumed_run():
    model, optimizers, _ = small_run()
    train(model, optimizers, range(4))
    other, fresh, _ = small_run()
    other.load_state_dict(model.state_dict())
    train(model, optimizers, range(4, 6))
    train(other, fresh, range(4, 6))
    assert not equal_weights(model, other)


def test_gradients_are_dropped():
    model, optimizers, _ = small_run()
    train(model, optimizers, [0])
    assert any(p.grad is not None for p in model.parameters())
    optimizers.zero_grad()
    assert all(p.grad is None for p in model.parameters())


def test_matrix_that_was_not_initialised_is_named():
    model, _, spec = small_run()
    torch.nn.init.zeros_(model.loop[1].mlp.up.weight)
    with pytest.raises(ConfigError, match=r"loop\.1\.mlp\.up\.weight: got norm 0\.0"):
        build_optimizers(model, spec)
