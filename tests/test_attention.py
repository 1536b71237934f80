"""Which attention kernel runs where, and that those that run here agree with the formula."""

# ruff: noqa: E402 (what needs torch is imported once it is known to be there)

import logging

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel

from looped.config import ModelConfig
from looped.errors import ConfigError
from looped.model import attention
from looped.model.attention import attend, available_backends, choose_backend
from looped.model.looped_lm import LoopedLM

pytestmark = pytest.mark.train

HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
USABLE = [name for name, why_not in available_backends(HERE).items() if why_not is None]
BF16, FP32 = torch.bfloat16, torch.float32
ALL = ("flash2", "flash3", "flash4")
KERNELS = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]


def on_chip(monkeypatch, capability, installed=ALL):
    """Pretend a chip and packages. Returns the list of implementations that torch is told of."""
    modules = {attention.BACKENDS[name].module for name in installed}
    activated = []
    monkeypatch.setattr(attention, "_capability", lambda device: capability)
    monkeypatch.setattr(
        attention, "_import_problem", lambda m, _: None if m in modules else f"no module {m}"
    )
    monkeypatch.setattr(attention, "_activate", activated.append)
    return activated


@pytest.mark.parametrize(
    ("capability", "installed", "dtype", "expected"),
    [
        (None, ALL, BF16, "sdpa"),  # no CUDA device
        ((7, 5), ALL, BF16, "sdpa"),  # Turing
        ((8, 0), ALL, BF16, "flash2"),  # Ampere
        ((8, 6), ALL, BF16, "flash2"),
        ((8, 9), ALL, BF16, "flash2"),  # Ada
        ((9, 0), ALL, BF16, "flash3"),  # Hopper
        ((10, 0), ALL, BF16, "flash4"),  # Blackwell
        ((12, 0), ALL, BF16, "sdpa"),
        ((9, 0), ALL, torch.float16, "flash3"),
        ((9, 0), ALL, FP32, "sdpa"),
        ((8, 0), ("flash3", "flash4"), BF16, "sdpa"),
        ((9, 0), ("flash2", "flash4"), BF16, "sdpa"),
        ((10, 0), ("flash2", "flash3"), BF16, "sdpa"),
        ((9, 0), (), BF16, "sdpa"),
    ],
)
def test_auto_takes_the_best_for_the_chip(monkeypatch, capability, installed, dtype, expected):
    activated = on_chip(monkeypatch, capability, installed)
    assert choose_backend("auto", "cuda", dtype) == expected
    assert activated == [{"flash3": "FA3", "flash4": "FA4"}.get(expected)]


def test_auto_leaves_head_sizes_that_a_kernel_lacks(monkeypatch):
    on_chip(monkeypatch, (10, 0))
    assert choose_backend("auto", "cuda", BF16, d_head=128) == "flash4"
    assert choose_backend("auto", "cuda", BF16, d_head=136) == "sdpa"
    on_chip(monkeypatch, (9, 0))
    assert choose_backend("auto", "cuda", BF16, d_head=256) == "flash3"
    assert choose_backend("auto", "cuda", BF16, d_head=20) == "sdpa"


@pytest.mark.parametrize(
    ("name", "capabilities"),
    [
        ("flash2", {(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)}),
        ("flash3", {(9, 0)}),
        ("flash4", {(9, 0), (10, 0)}),
    ],
)
def test_a_requested_backend_runs_where_it_can(monkeypatch, name, capabilities):
    for capability in [None, (7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)]:
        on_chip(monkeypatch, capability)
        reason = available_backends("cuda")[name]
        assert (reason is None) == (capability in capabilities)
        if reason is None:
            assert choose_backend(name, "cuda", BF16) == name
        else:
            with pytest.raises(ConfigError, match=f"{name}.*compute capability"):
                choose_backend(name, "cuda", BF16)


def test_a_refused_request_says_why(monkeypatch):
    on_chip(monkeypatch, (9, 0), installed=("flash3",))
    with pytest.raises(ConfigError, match="bfloat16 or float16 only; use 'auto' or 'sdpa'"):
        choose_backend("flash3", "cuda", FP32)
    with pytest.raises(ConfigError, match="no module flash_attn"):
        choose_backend("flash4", "cuda", BF16)
    with pytest.raises(ConfigError, match="d_head is 12, it needs a multiple of 8"):
        choose_backend("flash3", "cuda", BF16, d_head=12)
    with pytest.raises(ConfigError, match="got 'flash9', expected one of auto, sdpa"):
        choose_backend("flash9", "cuda", BF16)


def test_a_package_that_lacks_the_function_does_not_count():
    assert attention._import_problem("math", "sqrt") is None
    assert "math.flash_attn_func cannot be imported" in attention._import_problem(
        "math", "flash_attn_func"
    )
    assert "no_such_package" in attention._import_problem("no_such_package", "f")


def test_the_kernel_of_torch_follows_the_choice(monkeypatch):
    calls, active = [], [None]
    torch_attention = attention.torch_attention
    monkeypatch.setattr(torch_attention, "current_flash_attention_impl", lambda: active[-1])
    for name in ("activate", "restore"):
        monkeypatch.setattr(
            torch_attention,
            f"{name}_flash_attention_impl",
            lambda impl=None: (calls.append(impl), active.append(impl)),
        )
    for impl in (None, "FA3", "FA3", "FA4", None, None):
        attention._activate(impl)
    assert calls == ["FA3", "FA4", None]


def test_the_choice_is_logged_once(caplog):
    attention._announce.cache_clear()
    with caplog.at_level(logging.INFO, logger="looped"):
        for _ in range(3):
            choose_backend("auto", "cpu", FP32)
    assert [r.getMessage() for r in caplog.records] == ["attention backend on cpu: sdpa"]


# Agreement


def heads(dtype, batch=2, time=33, n_heads=3, d_head=16):
    rng = torch.Generator().manual_seed(0)
    shape = (3, batch, time, n_heads, d_head)
    return torch.randn(shape, generator=rng, dtype=torch.float64).to(HERE, dtype).unbind()


def by_formula(q, k, v):
    scores = torch.einsum("bthk,bshk->bhts", q, k) / q.shape[-1] ** 0.5
    future = torch.ones(scores.shape[-2:], device=q.device).triu(1).bool()
    weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1)
    return torch.einsum("bhts,bshk->bthk", weights, v)


@pytest.mark.parametrize("name", USABLE)
def test_a_backend_computes_the_formula_and_its_gradient(name):
    dtype, tolerance = (torch.float64, 1e-12) if name == "sdpa" else (BF16, 3e-2)
    choose_backend(name, HERE, dtype, 16)
    own = [x.requires_grad_() for x in heads(dtype)]
    exact = [x.detach().double().requires_grad_() for x in own]
    out, expected = attend(*own, name), by_formula(*exact)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=tolerance)
    out.square().sum().backward()
    expected.square().sum().backward()
    for x, y in zip(own, exact, strict=True):
        torch.testing.assert_close(x.grad.double(), y.grad, rtol=tolerance, atol=5 * tolerance)


def model_logits(attention="sdpa", kernel=None, mixed=False):
    """Logits of the same weights and tokens by one kernel."""
    config = ModelConfig(
        d_model=64, d_head=32, n_recur=4, n_loop=2, variant="linear", vocab_size=64, seq_len=48
    )
    model = LoopedLM(config, attention).to(HERE)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        drawn = 0.1 * torch.randn(model.unembed.weight.shape, generator=rng)
        model.unembed.weight.copy_(drawn)
        tokens = torch.randint(64, (2, 48), generator=rng).to(HERE)
        with torch.autocast(HERE.type, BF16, enabled=mixed), sdpa_kernel(kernel or KERNELS):
            return model(tokens)


@pytest.mark.skipif(HERE.type != "cpu", reason="the fused kernel of GPUs has no fp32")
def test_fused_and_plain_kernel_give_the_same_logits():
    plain, fused = (model_logits(kernel=k) for k in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION))
    torch.testing.assert_close(fused, plain, rtol=0, atol=1e-5)
    assert plain.std() > 0.5


@pytest.mark.parametrize("name", USABLE)
def test_every_backend_gives_the_logits_of_sdpa(name):
    mixed = name != "sdpa"
    own, exact = model_logits(name, mixed=mixed), model_logits("sdpa")
    torch.testing.assert_close(own, exact, rtol=0, atol=0.1 if mixed else 1e-5)
