"""Decoding with a cache against the whole context run again for every token."""

# ruff: noqa: E402 (what needs torch is imported once it is known to be there)

import pytest

torch = pytest.importorskip("torch")

from looped import accounting
from looped.config import ModelConfig
from looped.errors import ConfigError
from looped.model.decoding import KVCache, generate
from looped.model.looped_lm import LoopedLM
from looped.variants import VARIANTS

pytestmark = pytest.mark.train

PROMPTS = [[3, 1, 4, 1, 5, 9, 2], [6, 5], [8, 7, 9, 3]]


def tiny(variant="linear", **sizes):
    """A small config; `none` runs the loop block once."""
    defaults = {"d_model": 16, "d_head": 8, "n_prelude": 1, "n_loop": 2, "n_coda": 1}
    defaults |= {"vocab_size": 24, "vocab_used": 21, "seq_len": 16}
    defaults |= {"n_recur": 1 if variant == "none" else 4}
    return ModelConfig(variant=variant, **(defaults | sizes))


def trained(config, scale=0.2):
    """A float64 model with every weight moved off its initial value."""
    model = LoopedLM(config).double()
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=rng, dtype=p.dtype), alpha=scale)
    return model


@torch.no_grad()
def cached_logits(model, prompts, new, kept=None, n_recur=None):
    """Logits of each position by row, [T, V]: the prompt at once, then `new` token by token."""
    lengths = [len(p) for p in prompts]
    padded = [p + [20] * (max(lengths) - len(p)) for p in prompts]
    cache = KVCache(model, len(prompts), max(lengths) + len(new[0]), kept, n_recur)
    out = model(torch.tensor(padded), n_recur, cache)
    cache.advance(lengths)
    found = [[*row[:length]] for row, length in zip(out, lengths, strict=True)]
    for step in range(len(new[0])):
        out = model(torch.tensor([[row[step]] for row in new]), n_recur, cache)
        cache.advance([1] * len(prompts))
        for row, logits in zip(found, out[:, 0], strict=True):
            row.append(logits)
    return [torch.stack(row) for row in found]


@torch.no_grad()
def whole_logits(model, prompts, new, n_recur=None):
    return [model(torch.tensor([p + n]), n_recur)[0] for p, n in zip(prompts, new, strict=True)]


NEW = [[10, 11, 12, 13], [1, 2, 3, 4], [20, 0, 20, 0]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_with_all_recurrences_kept_the_cache_is_exact(variant):
    model = trained(tiny(variant))
    cached = cached_logits(model, PROMPTS, NEW)
    for own, expected in zip(cached, whole_logits(model, PROMPTS, NEW), strict=True):
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-9)


def test_the_cache_is_exact_for_another_number_of_recurrences():
    model = trained(tiny())
    cached = cached_logits(model, PROMPTS, NEW, n_recur=6)
    for own, expected in zip(cached, whole_logits(model, PROMPTS, NEW, 6), strict=True):
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-9)


def test_fewer_recurrences_kept_change_new_tokens_only():
    model = trained(tiny())
    whole = whole_logits(model, PROMPTS, NEW)
    by_kept = [cached_logits(model, PROMPTS, NEW, kept) for kept in (1, 2, 3)]
    for cached in by_kept:
        for own, expected, prompt in zip(cached, whole, PROMPTS, strict=True):
            # The prompt runs in parallel, each recurrence with its own keys.
            torch.testing.assert_close(own[: len(prompt)], expected[: len(prompt)])
            assert ((own - expected)[len(prompt) :].abs().amax(dim=-1) > 1e-6).all()
    assert (by_kept[0][0] - by_kept[1][0]).abs().max() > 1e-4


def test_one_recurrence_kept_is_exact_where_all_recurrences_have_the_same_keys():
    """W_inj = [I | 0]: each recurrence sees e alone, so all of them make the same keys."""
    model = trained(tiny())
    model.variant.init_weights()
    for kept in (1, 2, 3):
        cached = cached_logits(model, PROMPTS, NEW, kept)
        for own, expected in zip(cached, whole_logits(model, PROMPTS, NEW), strict=True):
            torch.testing.assert_close(own, expected, rtol=0, atol=1e-9)


@torch.no_grad()
def test_a_new_token_reads_the_last_recurrence_that_used_its_slot():
    """r = 2, kept = 1: the second token's first recurrence attends to the first token's second."""
    model = trained(tiny(n_recur=2, n_loop=1))
    keys = []
    model.loop[0].attention.key.register_forward_hook(lambda m, i, out: keys.append(out))
    whole = model(torch.tensor([[5, 6]]))
    per_step = keys[:2]  # keys before the rotation, which leaves position 0 as it is
    cache = KVCache(model, 1, 2, kept=1)
    model(torch.tensor([[5]]), cache=cache)
    cache.advance([1])
    slot = cache.slot("loop", 0, 0)
    stored = slot.keys[0, 0].flatten()
    second = per_step[1][0, 0].view(2, 8)
    normed = second / (second.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(stored, normed.flatten(), rtol=0, atol=1e-12)
    assert slot.keys.data_ptr() == cache.slot("loop", 0, 1).keys.data_ptr()
    assert not torch.allclose(model(torch.tensor([[6]]), cache=cache)[0, 0], whole[0, 1])


@pytest.mark.parametrize("kept", [None, 1, 2, 3, 4])
def test_the_cache_has_the_size_of_the_accounting(kept):
    config = tiny(n_prelude=2, n_loop=3)
    cache = KVCache(LoopedLM(config).double(), n_rows=3, n_tokens=11, kept=kept)
    expected = accounting.kv_cache_bytes_per_token(config, kept=kept, bytes_per_value=8)
    assert cache.bytes_per_token == expected
    used = {
        cache.slot(part, index, step).keys.data_ptr()
        for part, layers, steps in (("prelude", 2, 1), ("loop", 3, 4), ("coda", 1, 1))
        for index in range(layers)
        for step in range(steps)
    }
    assert len(used) == len(cache.keys)


def test_recurrences_share_slots_in_turn():
    cache = KVCache(LoopedLM(tiny(n_recur=5)), n_rows=1, n_tokens=2, kept=2)
    for index in (0, 1):
        slots = [cache.slot("loop", index, step).keys.data_ptr() for step in range(5)]
        assert slots == [slots[0], slots[1]] * 2 + [slots[0]]
        assert slots[0] != slots[1]


def test_under_autocast_the_cache_is_in_half_precision():
    model = LoopedLM(tiny())
    with torch.autocast("cpu", torch.bfloat16):
        cache = KVCache(model, 1, 4)
        assert cache.bytes_per_token == accounting.kv_cache_bytes_per_token(model.config)
        assert len(generate(model, PROMPTS, 3)) == 3


# Generation


@torch.no_grad()
def greedy(model, prompt, n_new, n_recur=None):
    tokens = list(prompt)
    for _ in range(n_new):
        tokens.append(model(torch.tensor([tokens]), n_recur)[0, -1].argmax().item())
    return tokens[len(prompt) :]


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_decoding_takes_the_likeliest_token(variant):
    model = trained(tiny(variant))
    expected = [greedy(model, p, 6) for p in PROMPTS]
    assert generate(model, PROMPTS, 6) == expected
    assert len({tuple(tokens) for tokens in expected}) > 1
    assert all(token < 21 for tokens in expected for token in tokens)


def test_generation_takes_another_number_of_recurrences():
    model = trained(tiny())
    assert generate(model, PROMPTS, 5, n_recur=7) == [greedy(model, p, 5, 7) for p in PROMPTS]
    with pytest.raises(ConfigError, match="defined for the trained n_recur only"):
        generate(trained(tiny("hyperconnect")), PROMPTS, 5, n_recur=7)


def test_compiled_layers_decode_eagerly():
    def refuse(graph, inputs):
        raise AssertionError("compiled in decoding")

    model, compiled = trained(tiny()), trained(tiny())
    compiled.compile_blocks(backend=refuse)
    assert generate(compiled, PROMPTS, 4) == generate(model, PROMPTS, 4)


def test_samples_follow_the_probabilities():
    model = trained(tiny(seq_len=4))
    n, prompt, temperature = 4000, [3, 1], 2.0
    with torch.no_grad():
        p = (model(torch.tensor([prompt]))[0, -1] / temperature).softmax(dim=-1)
    drawn = torch.tensor(generate(model, [prompt] * n, 1, temperature=temperature, seed=1))
    share = torch.bincount(drawn[:, 0], minlength=21) / n
    assert ((share - p).abs() < 5 * (p * (1 - p) / n).sqrt() + 1e-3).all()
    assert p.max() < 0.9

    best = p.topk(2).indices.sort().values
    drawn = generate(model, [prompt] * 200, 1, temperature=temperature, top_k=2)
    assert sorted({row[0] for row in drawn}) == best.tolist()


def test_samples_depend_on_the_seed():
    model = trained(tiny())
    first, again, other = (
        generate(model, PROMPTS, 8, temperature=1.0, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": []}, "at least one"),
        ({"prompts": [[1], []]}, "at least one token"),
        ({"prompts": [[1, 21]]}, "got token 21, expected 0 to 20"),
        ({"prompts": [[1] * 14]}, "got 14 tokens and n_new=3, expected at most 16"),
        ({"n_new": 0}, "n_new: got 0"),
        ({"temperature": -1.0}, "temperature: got -1.0"),
        ({"temperature": float("nan")}, "temperature: got nan"),
        ({"top_k": 0}, "top_k: got 0"),
        ({"kept": 5}, "kept: got 5 recurrences, expected 1 to n_recur=4"),
        ({"kept": 0}, "kept: got 0"),
    ],
)
def test_what_cannot_be_generated_is_refused(change, message):
    arguments = {"prompts": PROMPTS, "n_new": 3} | change
    with pytest.raises(ValueError, match=message):
        generate(LoopedLM(tiny()), **arguments)
