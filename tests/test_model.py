"""The model against its accounting: parameters, FLOPs, groups, initial weights, precision."""

# ruff: noqa: E402 (what needs torch is imported once it is known to be there)

import math
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from looped import accounting
from looped.config import ModelConfig
from looped.errors import ConfigError
from looped.model.layers import Block, Matrix, RMSNorm
from looped.model.looped_lm import GROUPS, LoopedLM
from looped.model.variants import VARIANT_CLASSES
from looped.studies.paper import paper_config
from looped.variants import VARIANTS

pytestmark = pytest.mark.train

LOOPED = [v for v in VARIANTS if v != "none"]


def tiny(variant="linear", **sizes):
    """A small config; `none` runs the loop block once."""
    defaults = {"d_model": 16, "d_head": 8, "n_prelude": 1, "n_loop": 2, "n_coda": 1}
    defaults |= {"vocab_size": 40, "seq_len": 12, "n_recur": 1 if variant == "none" else 3}
    return ModelConfig(variant=variant, **(defaults | sizes))


def rows(config, n_rows=2, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(config.n_vocab, (n_rows, config.seq_len + 1), generator=rng)


def on_meta(config):
    with torch.device("meta"):
        return LoopedLM(config)


def numel(*modules):
    return sum(p.numel() for module in modules for p in module.parameters())


PAPER = [paper_config(d, r) for d in (384, 640, 2176) for r in (1, 2, 4, 8)]
PAPER += [paper_config(640, r, variant) for r in (2, 4, 8) for variant in LOOPED]
PAPER += [paper_config(384, 1, variant) for variant in LOOPED]
ODD = [
    tiny(v, n_prelude=p, n_loop=n, n_coda=c)
    for v in VARIANTS
    for p, n, c in [(0, 3, 0), (3, 1, 0), (0, 1, 5)]
]
ODD += [tiny("hyperconnect", n_lanes=n, n_recur=r) for n in (1, 3, 4) for r in (1, 5)]


@pytest.mark.parametrize("config", PAPER + ODD, ids=str)
def test_parameters_are_those_of_the_accounting(config):
    model = on_meta(config)
    sections = {
        "embedding": numel(model.embed),
        "prelude": numel(model.prelude),
        "loop": numel(model.loop),
        "coda": numel(model.coda),
        "norms": numel(model.norm_embed, model.norm_recur, model.norm_out),
        "unembedding": numel(model.unembed),
        "injection": 0,
        "lanes": 0,
    }
    own = "lanes" if config.variant == "hyperconnect" else "injection"
    sections[own] = numel(model.variant)
    assert sections == accounting.params_by_section(config)
    assert numel(model) == sum(sections.values())
    assert numel(model) - 2 * config.vocab_size * config.d_model == accounting.n_params(config)


def measured_flops(config, n_rows=2):
    """FLOPs per token of a forward and backward pass, as torch counts those that it runs.

    Attention runs as plain products: torch's counter has no rule for the CPU's fused kernel.
    """
    model = LoopedLM(config)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model.loss(rows(config, n_rows)).backward()
    return counter.get_total_flops() / (n_rows * config.seq_len)


def uncounted_flops(config):
    """What the accounting counts and torch does not, since neither is a matrix product.

    Two norm scales [D] of each layer, as parameters of the block; and the outer product of write
    weights [N] and h [D], in each step of the hyperconnections.
    """
    forward, train = 2, 6
    layers = [(config.n_prelude + config.n_coda, train)]
    layers += [(config.n_loop * config.n_recur_grad, train)]
    layers += [(config.n_loop * (config.n_recur - config.n_recur_grad), forward)]
    scales = sum(n * per_parameter * 2 * config.d_model for n, per_parameter in layers)
    lanes = config.n_lanes if config.variant == "hyperconnect" else 0
    return scales + train * config.n_recur * lanes * config.d_model


FLOP_CONFIGS = [tiny(v) for v in VARIANTS] + [tiny("hyperconnect", n_lanes=3, n_recur=4)]
FLOP_CONFIGS += [
    tiny(v, n_recur=4, bptt=k, n_prelude=2) for v in ("linear", "additive") for k in (1, 2, 3)
]


@pytest.mark.parametrize("config", FLOP_CONFIGS, ids=str)
def test_flops_are_those_of_the_accounting(config):
    assert measured_flops(config) == accounting.flops_per_token(config) - uncounted_flops(config)


def test_padding_of_the_vocabulary_is_multiplied():
    padded, full = tiny(vocab_used=33), tiny()
    assert measured_flops(padded) == measured_flops(full)


@pytest.mark.parametrize("variant", VARIANTS)
def test_groups_hold_every_parameter_once(variant):
    model = on_meta(tiny(variant))
    groups = model.parameter_groups()
    assert tuple(groups) == GROUPS
    found = [(name, id(p)) for group in groups.values() for name, p in group.items()]
    assert sorted(found) == sorted((name, id(p)) for name, p in model.named_parameters())
    assert list(groups["embed"]) == ["embed.weight"]
    assert list(groups["unembed"]) == ["unembed.weight"]
    assert all(p.ndim == 2 for p in groups["matrix"].values())
    assert ("variant.weight" in groups["matrix"]) == (variant == "linear")
    assert all(p.shape == (16,) for p in groups["norm"].values())
    assert len(groups["norm"]) == 3 + 2 * 4
    assert bool(groups["lanes"]) == (variant == "hyperconnect")


def test_every_variant_of_the_configuration_has_a_class():
    assert list(VARIANT_CLASSES) == list(VARIANTS)


# Initial weights


def test_initial_weights_have_the_stated_distribution():
    d = 128
    model = LoopedLM(tiny(d_model=d, d_head=32, vocab_size=512), seed=3)
    stds = {"embed.weight": 1.0, "unembed.weight": 0.001}
    for name, p in model.named_parameters():
        if "norm" in name:
            assert torch.equal(p, torch.ones(d))
        elif name == "variant.weight":
            assert torch.equal(p, torch.cat([torch.eye(d), torch.zeros(d, d)], dim=1))
        else:
            std = stds.get(name, (4 * d) ** -0.5 if "down" in name else d**-0.5)
            assert p.std().item() == pytest.approx(std, rel=0.02)
            assert abs(p.mean().item()) < 5 * std / p.numel() ** 0.5
            limit = p.abs().max().item() / (std * math.sqrt(3))
            assert limit > 1.5 if name in stds else 0.999 < limit <= 1 + 1e-6


def test_lanes_start_as_read_in_turn_unmixed_and_all_written():
    lanes = LoopedLM(tiny("hyperconnect", n_lanes=3, n_recur=5)).variant
    assert lanes.read_weight.argmax(dim=1).tolist() == [0, 1, 2, 0, 1]
    assert torch.equal(lanes.read_weight.sum(dim=1), torch.ones(5))
    assert torch.equal(lanes.read_weight.square().sum(dim=1), torch.ones(5))
    assert all(torch.equal(step, torch.eye(3)) for step in lanes.mix_weight)
    assert torch.equal(lanes.write_weight, torch.ones(5, 3))


def test_no_matrix_is_drawn_twice():
    model = LoopedLM(tiny())
    first = [p[0, 0].item() for name, p in model.named_parameters() if p.ndim == 2]
    assert len(set(first)) == len(first)


def test_initial_weights_depend_on_the_seed_alone():
    config = tiny("hyperconnect")
    torch.manual_seed(1)
    state, again = LoopedLM(config, seed=5).state_dict(), LoopedLM(config, seed=5)
    torch.manual_seed(2)
    again.init_weights(torch.Generator().manual_seed(5))
    assert all(torch.equal(state[name], p) for name, p in again.state_dict().items())
    assert not torch.equal(state["embed.weight"], LoopedLM(config, seed=6).embed.weight)


def test_weights_can_come_after_the_meta_device():
    config = tiny()
    model = on_meta(config).to_empty(device="cpu")
    model.init_weights(4)
    assert torch.equal(model.loss(rows(config)), LoopedLM(config, seed=4).loss(rows(config)))


# Logits and loss


def test_loss_at_the_start_is_that_of_a_uniform_guess():
    config = tiny(vocab_size=64, vocab_used=50)
    assert LoopedLM(config).loss(rows(config)).item() == pytest.approx(math.log(50), abs=0.01)


def test_loss_is_the_cross_entropy_of_the_next_token():
    config = tiny(vocab_used=37)
    model, text = LoopedLM(config).double(), rows(config)
    torch.nn.init.normal_(model.unembed.weight)
    logp = model(text[:, :-1]).log_softmax(dim=-1)
    expected = [[-logp[b, t, text[b, t + 1]].item() for t in range(12)] for b in range(2)]
    each = model.loss(text, reduction="none")
    torch.testing.assert_close(each, torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(model.loss(text), each.mean())
    torch.testing.assert_close(model.loss(text.int()), each.mean())


def test_logits_are_capped_and_without_padding():
    config = tiny(vocab_size=64, vocab_used=50)
    model = LoopedLM(config)
    torch.nn.init.normal_(model.unembed.weight, std=100)
    logits = model(rows(config)[:, :-1])
    assert logits.shape == (2, 12, 50)
    assert 14.9 < logits.abs().max() <= 15


def test_another_number_of_recurrences_only_where_it_has_a_meaning():
    for variant in ("linear", "additive", "passthrough"):
        more = LoopedLM(tiny(variant, n_recur=5))
        model = LoopedLM(tiny(variant, n_recur=3))
        text = rows(model.config)
        assert torch.equal(model.loss(text, n_recur=5), more.loss(text))
        with pytest.raises(ConfigError, match="got 0, expected at least 1"):
            model.loss(text, n_recur=0)
    for variant in ("none", "hyperconnect"):
        model = LoopedLM(tiny(variant))
        with pytest.raises(ConfigError, match="defined for the trained n_recur only"):
            model(text, n_recur=2)
        assert torch.equal(model(text), model(text, n_recur=model.config.n_recur))


# Precision, devices, compilation


def autocast(on):
    return torch.autocast("cpu", torch.bfloat16) if on else nullcontext()


@pytest.mark.parametrize("variant", VARIANTS)
def test_autocast_keeps_the_residual_stream_in_fp32(variant):
    config = tiny(variant)
    model, seen = LoopedLM(config), {Block: set(), RMSNorm: set(), Matrix: set()}
    for module in model.modules():
        if type(module) in seen:
            module.register_forward_hook(lambda m, _, out: seen[type(m)].add(out.dtype))
    with autocast(True):
        loss = model.loss(rows(config))
    loss.backward()
    assert seen == {Block: {torch.float32}, RMSNorm: {torch.float32}, Matrix: {torch.bfloat16}}
    assert loss.dtype == torch.float32
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}


def test_autocast_changes_the_logits_by_rounding_only():
    config = tiny(seq_len=200)
    model = LoopedLM(config)
    torch.nn.init.normal_(model.unembed.weight, std=0.25)
    tokens = rows(config)
    exact = model(tokens)
    with autocast(True):
        rounded = model(tokens)
    # Rotary angles in bf16 would be off by half a radian at position 200.
    assert 1e-4 < (rounded - exact).abs().max() < 0.1
    assert exact.std() > 0.9


def test_no_table_is_stored_with_the_weights():
    model = LoopedLM(tiny())
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}
    assert not list(model.buffers())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's
def test_one_compiled_layer_serves_all():
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    config = tiny(n_prelude=3, n_loop=3, n_coda=3, n_recur=4, bptt=2)
    model, compiled, counter = LoopedLM(config), LoopedLM(config), CompileCounter()
    compiled.compile_blocks(backend=counter, fullgraph=True)
    expected, loss = model.loss(rows(config)), compiled.loss(rows(config))
    torch.testing.assert_close(loss, expected)
    # A layer with gradient, and without in the truncated recurrences; the loss of a row.
    assert counter.frame_count == 3
    loss.backward(), expected.backward()
    for own, other in zip(compiled.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad)
