"""MuonH against exact truths: polar factors, spheres, a slow reference of one matrix at a time."""

# ruff: noqa: E402 (what needs torch is imported once it is known to be there)

import copy
import io
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

from looped import ConfigError
from looped.training.muonh import POLAR_EXPRESS, SAFETY, MuonH, orthogonalize

pytestmark = pytest.mark.train

SHAPES = [(16, 16), (64, 16), (16, 16), (16, 64), (16, 16), (24, 16)]
LR = 0.014


def make_matrices(shapes=SHAPES, seed=0):
    generator = torch.Generator().manual_seed(seed)
    draws = [torch.randn(shape, generator=generator) for shape in shapes]
    return [(f"m{i}", torch.nn.Parameter(draw)) for i, draw in enumerate(draws)]


def set_gradients(named, step):
    generator = torch.Generator().manual_seed(1000 + step)
    for _, p in named:
        p.grad = torch.randn(p.shape, generator=generator)


def train(named, optimizer, steps):
    for step in steps:
        set_gradients(named, step)
        optimizer.step()


def polynomial(sigma):
    """What the five steps make of a singular value relative to the Frobenius norm."""
    sigma = sigma / SAFETY
    for a, b, c in POLAR_EXPRESS:
        sigma = a * sigma + b * sigma**3 + c * sigma**5
    return sigma


def closest_quintic(low, high):
    """Coefficients of the odd quintic closest to 1 on [low, high], by Remez's exchange."""
    inner = np.array([3 * low + high, low + 3 * high]) / 4
    for _ in range(50):
        x = np.array([low, *inner, high])
        a, b, c, _ = np.linalg.solve(np.stack([x, x**3, x**5, [1, -1, 1, -1]], 1), np.ones(4))
        inner = np.sqrt((-3 * b + np.array([-1, 1]) * np.sqrt(9 * b * b - 20 * a * c)) / (10 * c))
    return np.array([a, b, c])


def test_coefficients_follow_from_the_construction_of_polar_express():
    low, high, safety, cushion = 1e-3, 1.0, 1.02, 0.02
    for step, published in enumerate(POLAR_EXPRESS, 1):
        fit = closest_quintic(max(low, cushion * high), high)
        values = [fit @ np.array([x, x**3, x**5]) for x in (low, high)]
        fit *= 2 / sum(values)  # centres the ends on 1 where the cushion shortened the interval
        if step < len(POLAR_EXPRESS):
            fit /= safety ** np.array([1, 3, 5])
        np.testing.assert_allclose(published, fit, rtol=1e-9)
        low = fit @ np.array([low, low**3, low**5])
        high = 2 - low


@pytest.mark.parametrize("shape", [(32, 32), (32, 128), (128, 32), (1, 7)])
def test_singular_values_follow_the_polynomial_and_vectors_stay(shape):
    stack = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    u, sigma, vh = torch.linalg.svd(stack.double(), full_matrices=False)
    expected = polynomial(sigma / sigma.norm(dim=-1, keepdim=True))
    exact = u @ torch.diag_embed(expected) @ vh
    torch.testing.assert_close(orthogonalize(stack).double(), exact, rtol=0, atol=2e-5)


def test_every_singular_value_down_to_a_thousandth_ends_near_one():
    reached = polynomial(torch.logspace(-3, 0, 10_001, dtype=torch.float64))
    assert (reached - 1).abs().max() < 0.16
    assert polynomial(torch.tensor(1e-5)) < 0.05


@pytest.mark.parametrize("shape", [(64, 64), (64, 256)])
def test_random_matrices_become_nearly_orthogonal(shape):
    stack = torch.randn(4, *shape, generator=torch.Generator().manual_seed(1))
    result = torch.linalg.svdvals(orthogonalize(stack))
    polar = torch.linalg.svd(stack, full_matrices=False)
    assert (result - 1).abs().quantile(0.9) < 0.16
    cosine = (orthogonalize(stack) * (polar.U @ polar.Vh)).sum((1, 2)) / result.norm(dim=-1)
    assert (cosine / shape[0] ** 0.5 > 0.99).all()


def test_norms_stay_where_they_started_over_200_steps():
    named = make_matrices()
    norms = [p.norm().item() for _, p in named]
    optimizer = MuonH(named, lr=0.05)
    for step in range(200):
        train(named, optimizer, [step])
        for (_, p), norm in zip(named, norms, strict=True):
            assert p.norm().item() == pytest.approx(norm, rel=1e-5)


def step_alone(w, gradient, moment, norm, lr, momentum, polar):
    """The update of one matrix as the docstring of the module writes it."""
    moment = momentum * moment + (1 - momentum) * gradient
    u = polar((1 - momentum) * gradient + momentum * moment)
    w = w - lr * norm * u / u.norm()
    return w * norm / w.norm(), moment


def five_steps(x):
    if x.shape[0] > x.shape[1]:
        return five_steps(x.T).T
    x = x / x.norm() / SAFETY
    for a, b, c in POLAR_EXPRESS:
        x = a * x + b * (x @ x.T) @ x + c * (x @ x.T) @ (x @ x.T) @ x
    return x


def exact_polar(x):
    u, _, vh = torch.linalg.svd(x, full_matrices=False)
    return u @ vh


@pytest.mark.parametrize(
    ("polar", "steps", "tolerance"), [(five_steps, 10, 2e-5), (exact_polar, 1, 0.002)]
)
def test_update_is_that_of_the_slow_reference(polar, steps, tolerance):
    named = make_matrices()
    alone = {name: p.detach().clone() for name, p in named}
    norms = {name: w.norm() for name, w in alone.items()}
    moments = {name: torch.zeros_like(w) for name, w in alone.items()}
    optimizer = MuonH(named, lr=LR)
    for step in range(steps):
        train(named, optimizer, [step])
        for name, p in named:
            alone[name], moments[name] = step_alone(
                alone[name], p.grad, moments[name], norms[name], LR, 0.95, polar
            )
    for name, p in named:
        assert (p - alone[name]).norm() < tolerance * norms[name], name


def test_same_gradients_give_the_same_bits():
    runs = [make_matrices(), make_matrices()]
    for named in runs:
        train(named, MuonH(named, lr=LR), range(5))
    assert all(torch.equal(p, q) for (_, p), (_, q) in zip(*runs, strict=True))


def test_resumed_run_has_the_same_bits():
    named = make_matrices()
    optimizer = MuonH(named, lr=LR)
    train(named, optimizer, range(4))
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed = [(name, copy.deepcopy(p)) for name, p in named]
    other = MuonH(resumed, lr=0.5)
    other.load_state_dict(torch.load(file, weights_only=True))
    for matrices, opt in [(named, optimizer), (resumed, other)]:
        train(matrices, opt, range(4, 8))
    assert all(torch.equal(p, q) for (_, p), (_, q) in zip(named, resumed, strict=True))


def test_norm_of_the_start_survives_a_resume():
    named = make_matrices()
    state = MuonH(named).state_dict()
    with torch.no_grad():
        for _, p in named:
            p *= 1.5
    optimizer = MuonH(named)
    optimizer.load_state_dict(state)
    train(named, optimizer, [0])
    for (_, p), (_, start) in zip(named, make_matrices(), strict=True):
        assert p.norm().item() == pytest.approx(start.norm().item(), rel=1e-5)


def test_rate_zero_leaves_every_bit():
    named = make_matrices()
    train(named, MuonH(named, lr=0.0), range(3))
    assert all(torch.equal(p, q) for (_, p), (_, q) in zip(named, make_matrices(), strict=True))


def test_matrices_without_gradient_stay_and_zero_gradients_do_no_harm():
    named = make_matrices()
    optimizer = MuonH(named, lr=LR)
    set_gradients(named, 0)
    named[0][1].grad = None
    named[2][1].grad.zero_()
    optimizer.step()
    for i, (name, start) in enumerate(make_matrices()):
        moved = ((named[i][1] - start).norm() / start.norm()).item()
        assert moved == pytest.approx(0.0 if i in (0, 2) else LR, rel=0.05, abs=1e-6), name


def test_loss_of_a_regression_falls():
    (_, target), (_, x) = make_matrices([(16, 16), (256, 16)], seed=1)
    named = make_matrices([(16, 16)], seed=2)
    w = named[0][1]
    with torch.no_grad():
        w *= target.norm() / w.norm()
    optimizer = MuonH(named, lr=0.05)
    losses = []
    for _ in range(120):
        optimizer.zero_grad()
        loss = F.mse_loss(x @ w, (x @ target).detach())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.02 * losses[0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.zeros(4, 4), "loop.0.w: got norm 0.0, expected a finite positive norm"),
        (torch.full((4, 4), torch.nan), "loop.0.w: got norm nan"),
        (torch.ones(4), r"loop.0.w: got shape \(4,\), expected a matrix"),
    ],
)
def test_parameters_that_have_no_sphere_are_named(value, message):
    named = [*make_matrices(), ("loop.0.w", torch.nn.Parameter(value))]
    with pytest.raises(ConfigError, match=message):
        MuonH(named)


def _train_as_rank(rank, ranks, rendezvous, result, steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=ranks)
    named = make_matrices()
    optimizer = MuonH(named, lr=LR)
    train(named, optimizer, range(steps))
    flat = torch.cat([p.detach().flatten() for _, p in named])
    gathered = [torch.empty_like(flat) for _ in range(ranks)]
    dist.all_gather(gathered, flat)
    if rank == 0:
        torch.save({"ranks": gathered, "state": optimizer.state_dict()}, f"{result}.partial")
    dist.barrier()
    if rank == 0:
        # Gloo now and then aborts a process at its end; the file counts, not the exit status.
        os.replace(f"{result}.partial", result)
    dist.destroy_process_group()


def test_two_processes_that_share_the_work_are_one(tmp_path):
    steps, result = 4, tmp_path / "result.pt"
    process = mp.get_context("spawn").Process
    workers = [
        process(target=_train_as_rank, args=(r, 2, f"file://{tmp_path}/meet", str(result), steps))
        for r in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    shared = torch.load(result, weights_only=True)
    named = make_matrices()
    optimizer = MuonH(named, lr=LR)
    train(named, optimizer, range(steps))
    alone = torch.cat([p.detach().flatten() for _, p in named])
    assert torch.equal(*shared["ranks"])
    torch.testing.assert_close(shared["ranks"][0], alone, rtol=1e-5, atol=1e-6)
    for i, (_, p) in enumerate(named):
        kept = shared["state"]["state"][i]["momentum"]
        torch.testing.assert_close(kept, optimizer.state[p]["momentum"])
