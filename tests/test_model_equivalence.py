"""The looped model against other ways to write the same function, in float64.

A plain transformer written out in matrices, the loop unrolled into layers of their own, truncation
by detaching by hand, and hyperconnections as residual connections around each recurrence.
"""

# ruff: noqa: E402 (what needs torch is imported once it is known to be there)

import copy
import math
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F

from looped.config import ModelConfig
from looped.model.layers import rotary_tables, rotate
from looped.model.looped_lm import LoopedLM
from looped.variants import VARIANTS

pytestmark = pytest.mark.train

TRUNCATED = [(v, r, k) for v in ("linear", "additive") for r, k in [(2, 1), (4, 1), (4, 2), (8, 3)]]


def tiny(variant, **sizes):
    """A small config; `none` runs the loop block once."""
    defaults = {"d_model": 16, "d_head": 8, "n_prelude": 1, "n_loop": 2, "n_coda": 1}
    defaults |= {"vocab_size": 40, "seq_len": 10, "n_recur": 1 if variant == "none" else 4}
    return ModelConfig(variant=variant, **(defaults | sizes))


def trained(config, seed=0):
    """A float64 model with every weight moved off its initial value."""
    model = LoopedLM(config).double()
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=rng, dtype=p.dtype), alpha=0.2)
    return model


def rows(config, n_rows=3, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(config.n_vocab, (n_rows, config.seq_len + 1), generator=rng)


def logits_and_loss(model, x, text):
    """Final norm, unembedding and softcap, and the mean cross-entropy of the targets."""
    logits = 15 * torch.tanh(model.norm_out(x) @ model.unembed.weight.T / 15)
    return logits, F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


# A plain transformer


def rms(x, scale=1.0):
    return x / (x.pow(2).mean(dim=-1, keepdim=True) + 1e-6).sqrt() * scale


def turned(x):
    """Rotary positions of x [T, K] by rotation matrices, channel i paired with i + K/2."""
    time, width = x.shape
    out = torch.empty_like(x)
    for t in range(time):
        for i in range(width // 2):
            angle = t / 10_000 ** (2 * i / width)
            left, right = x[t, i].clone(), x[t, i + width // 2].clone()
            out[t, i] = left * math.cos(angle) - right * math.sin(angle)
            out[t, i + width // 2] = left * math.sin(angle) + right * math.cos(angle)
    return out


def plain_layer(x, weights, d_head):
    """One layer on x [T, D], from a dict of its weights."""
    normed = rms(x, weights["norm_attention.scale"])
    heads = []
    for at in range(0, x.shape[1], d_head):
        head = slice(at, at + d_head)
        q, k, v = (
            normed @ weights[f"attention.{m}.weight"][head].T for m in ("query", "key", "value")
        )
        scores = rms(turned(q)) @ rms(turned(k)).T / d_head**0.5
        future = torch.ones_like(scores).triu(1).bool()
        heads.append(scores.masked_fill(future, -torch.inf).softmax(dim=-1) @ v)
    x = x + torch.cat(heads, dim=1) @ weights["attention.out.weight"].T
    up = rms(x, weights["norm_mlp.scale"]) @ weights["mlp.up.weight"].T
    return x + up.clamp(min=0).pow(2) @ weights["mlp.down.weight"].T


@torch.no_grad()
def test_without_a_loop_it_is_a_plain_transformer():
    model = trained(tiny("none", n_loop=3))
    text = rows(model.config)
    w = model.state_dict()
    for tokens, logits in zip(text[:, :-1], model(text[:, :-1]), strict=True):
        x = rms(w["embed.weight"][tokens], w["norm_embed.scale"])
        for part, layers in (("prelude", 1), ("loop", 3), ("coda", 1)):
            for n in range(layers):
                start = f"{part}.{n}."
                own = {name[len(start) :]: p for name, p in w.items() if name.startswith(start)}
                x = plain_layer(x, own, d_head=8)
        x = rms(x, w["norm_recur.scale"])
        expected = 15 * torch.tanh(rms(x, w["norm_out.scale"]) @ w["unembed.weight"].T / 15)
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)


def test_rotary_scores_depend_on_the_distance_alone():
    q, k = torch.randn(2, 1, 1, 1, 64, dtype=torch.float64, generator=torch.manual_seed(0))
    scores = [
        (rotate(q, at(n + 7)) * rotate(k, at(n))).sum() for n in (0, 1, 500, 2040)
    ]  # query 7 positions after the key
    torch.testing.assert_close(torch.stack(scores), scores[0].expand(4), rtol=0, atol=1e-9)
    assert abs(scores[0] - (q * k).sum()) > 0.1


def at(position):
    return rotary_tables(torch.tensor([position]), 64, torch.float64)


# The loop unrolled


def unrolled(model, text, detached=0):
    """(logits, loss, copies): each recurrence run by a copy of its own of all that is shared.

    The state is cut from the graph after the first `detached` recurrences.
    """
    tokens = text[:, :-1]
    rotary = rotary_tables(torch.arange(tokens.shape[1]), 8, torch.float64)
    shared = torch.nn.ModuleList([model.loop, model.variant, model.norm_recur])
    copies = [copy.deepcopy(shared) for _ in range(model.config.n_recur)]
    x = model.norm_embed(model.embed(tokens))
    for block in model.prelude:
        x = block(x, rotary)
    e = x
    h = torch.zeros_like(e) if model.config.variant == "additive" else e
    for step, (loop, injection, norm) in enumerate(copies):
        if model.config.variant == "linear":
            x = torch.cat([e, h], dim=-1) @ injection.weight.T
        else:
            x = h + e if model.config.variant == "additive" else h
        for block in loop:
            x = block(x, rotary)
        h = norm(x)
        if step < detached:
            h = h.detach()
    for block in model.coda:
        h = block(h, rotary)
    return *logits_and_loss(model, h, text), copies


def gradients(model, loss):
    """Gradient by name; None where none arrived."""
    model.zero_grad()
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    return found


def shared_gradients(copies):
    """Sum over recurrences, by the names of the looped model, as far as gradient arrived."""
    total = {}
    for loop, injection, norm in copies:
        for part, module in (("loop", loop), ("variant", injection), ("norm_recur", norm)):
            for name, p in module.named_parameters(prefix=part):
                if p.grad is not None:
                    total[name] = total.get(name, 0) + p.grad
    return total


@pytest.mark.parametrize("variant", ["linear", "additive", "passthrough"])
@pytest.mark.parametrize("n_recur", [2, 4])
def test_the_loop_is_the_unrolled_network_with_tied_weights(variant, n_recur):
    model = trained(tiny(variant, n_recur=n_recur))
    text = rows(model.config)
    logits, loss, copies = unrolled(model, text)
    torch.testing.assert_close(model(text[:, :-1]), logits, rtol=0, atol=1e-12)
    expected = gradients(model, loss) | shared_gradients(copies)
    found = gradients(model, model.loss(text))
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-12)


# Truncated backpropagation


@pytest.mark.parametrize(("variant", "n_recur", "bptt"), TRUNCATED)
def test_truncation_is_a_state_detached_by_hand(variant, n_recur, bptt):
    full = trained(tiny(variant, n_recur=n_recur))
    model = trained(tiny(variant, n_recur=n_recur, bptt=bptt))
    text = rows(model.config)
    assert torch.equal(model.loss(text), full.loss(text))

    _, loss, copies = unrolled(model, text, detached=n_recur - bptt)
    expected = gradients(model, loss) | shared_gradients(copies)
    found = gradients(model, model.loss(text))
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-12)

    for copied in copies[: n_recur - bptt]:
        assert all(p.grad is None for p in copied.parameters())
    untruncated = gradients(full, full.loss(text))
    assert (untruncated["loop.0.mlp.up.weight"] - found["loop.0.mlp.up.weight"]).norm() > 1e-6


def saved_bytes(model, text):
    """Bytes that the forward pass keeps for the backward pass, each tensor once."""
    kept = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.setdefault(x.untyped_storage().data_ptr(), x), lambda x: x
    ):
        model.loss(text)
    return sum(x.untyped_storage().nbytes() for x in kept.values())


def test_truncation_saves_memory_for_each_recurrence_alike():
    used = [saved_bytes(LoopedLM(tiny("linear", bptt=k)), rows(tiny("linear"))) for k in (1, 2, 3)]
    full = saved_bytes(LoopedLM(tiny("linear")), rows(tiny("linear")))
    steps = torch.tensor([*used, full]).diff()
    assert (steps > 0.1 * full).all()
    assert steps.max() < 1.05 * steps.min()


@pytest.mark.parametrize("mixed", [False, True])
def test_truncation_under_autocast_loses_no_gradient(mixed):
    """autocast may keep casts of weights that it made without gradient, and reuse them after."""
    text = rows(tiny("linear"))
    model = LoopedLM(tiny("linear", bptt=2))
    torch.nn.init.normal_(model.unembed.weight)
    with torch.autocast("cpu", torch.bfloat16) if mixed else nullcontext():
        loss = model.loss(text)
    found = gradients(model, loss)
    exact = gradients(model, model.loss(text))
    for name, gradient in exact.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=0.05 * gradient.norm())
        assert gradient.norm() > 0


# Hyperconnections


def looped_by_hand(model, text, write):
    """Logits of a loop with h = RMSNorm(Block(s)) and s ← write(s, h), s₀ = e."""
    tokens = text[:, :-1]
    rotary = rotary_tables(torch.arange(tokens.shape[1]), 8, torch.float64)
    s = model.norm_embed(model.embed(tokens))
    for block in model.prelude:
        s = block(s, rotary)
    for _ in range(model.config.n_recur):
        x = s
        for block in model.loop:
            x = block(x, rotary)
        s = write(s, model.norm_recur(x))
    return s, rotary


def with_initial_lanes(config):
    model = trained(config)
    model.variant.init_weights()
    return model


@pytest.mark.parametrize("n_recur", [2, 4, 8])
@pytest.mark.parametrize("n_lanes", [1, 2, 3])
def test_hyperconnections_start_as_residuals_around_each_recurrence(n_recur, n_lanes):
    """s_t = s_{t-1} + h_t in every lane, so that the coda reads N s_r (arXiv 2409.19606)."""
    model = with_initial_lanes(tiny("hyperconnect", n_recur=n_recur, n_lanes=n_lanes))
    text = rows(model.config)
    x, rotary = looped_by_hand(model, text, write=torch.add)
    x = n_lanes * x
    for block in model.coda:
        x = block(x, rotary)
    expected, _ = logits_and_loss(model, x, text)
    torch.testing.assert_close(model(text[:, :-1]), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_recur", [2, 4, 8])
def test_hyperconnections_contain_the_plain_loop(n_recur):
    """a = b = (1, 0), M = 0: the first lane is h_t, so this is the loop without injection."""
    model = with_initial_lanes(tiny("hyperconnect", n_recur=n_recur))
    plain = LoopedLM(tiny("passthrough", n_recur=n_recur)).double()
    own = model.state_dict()
    plain.load_state_dict({name: own[name] for name in plain.state_dict()})
    text = rows(model.config)
    assert (model.loss(text) - plain.loss(text)).abs() > 1e-6
    first = torch.tensor([1.0, 0.0])
    with torch.no_grad():
        model.variant.read_weight.copy_(first.expand(n_recur, 2))
        model.variant.write_weight.copy_(first.expand(n_recur, 2))
        model.variant.mix_weight.zero_()
    torch.testing.assert_close(model.loss(text), plain.loss(text), rtol=0, atol=1e-12)


def test_lane_weights_of_all_steps_learn_and_break_the_symmetry_of_the_lanes():
    model = with_initial_lanes(tiny("hyperconnect"))
    grads = gradients(model, model.loss(rows(model.config)))
    for name in ("read_weight", "mix_weight", "write_weight"):
        assert all(step.norm() > 0 for step in grads[f"variant.{name}"])
    # Lane 1 is read in step 1, lane 0 is not: what step 0 writes has another effect in each.
    first = grads["variant.write_weight"][0]
    assert abs(first[0] - first[1]) > 1e-6


# Causality


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_token_changes_no_logits_before_it(variant):
    model = trained(tiny(variant))
    tokens = rows(model.config)[:, :-1]
    with torch.no_grad():
        before = model(tokens)
        for t in (1, 5, 9):
            changed = tokens.clone()
            changed[:, t] = (changed[:, t] + 1) % model.config.n_vocab
            after = model(changed)
            assert torch.equal(after[:, :t], before[:, :t])
            assert (after[:, t:] != before[:, t:]).any(dim=-1).all()
