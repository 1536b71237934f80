"""All starts at once: damped Newton steps on the Huber sum, in NumPy. The default solver.

Three ideas make it fast and sure:

* The law is linear in A, B, E once its exponents are held, so each start first takes its weighted
  linear least squares of them (variable projection), where that is positive.
* Far from the optimum the Hessian is that of the iteratively reweighted quadratic above the Huber
  sum, which always descends; near it the residuals beyond δ carry no curvature and are left out,
  which converges faster than linearly in practice. Levenberg-Marquardt damping guards both.
* Starts that have come to rest leave the batch.
"""

import numpy as np

from looped.fitting.problem import Problem, Solution

MAX_ITERATIONS = 2000  # a few starts creep along a flat valley or a bound of small tables
CHUNK_STARTS = 512  # bounds the memory: a chunk holds S x p x n numbers
AT_REST = 1e-10  # relative decrease of the objective that counts as none
NEAR = 1e-2  # relative decrease below which the curvature is the Huber sum's own
DAMPING_START, DAMPING_MIN, DAMPING_MAX = 1e-2, 1e-12, 1e6
DAMPING_UP, DAMPING_DOWN = 3.0, 0.3


def solve_batched(problem: Problem, starts: np.ndarray) -> Solution:
    """Minimise from every start [S, p]."""
    chunks = [slice(i, i + CHUNK_STARTS) for i in range(0, len(starts), CHUNK_STARTS)]
    solved = [_descend(problem.rows(chunk), starts[chunk]) for chunk in chunks]
    theta, objective = (np.concatenate(parts) for parts in zip(*solved, strict=True))
    return Solution(theta, objective)


def _project_linear(problem, theta) -> np.ndarray:
    """The starts with A, B, E at their linear least squares given the exponents, if positive."""
    n_terms = len(problem.law.intercepts)
    if not problem.free[:n_terms].all():
        return theta.copy()
    shapes = problem.law.shapes(theta, problem.design)
    centres = [shape.mean(axis=1, keepdims=True) for shape in shapes]
    basis = np.stack(
        np.broadcast_arrays(
            *[np.exp(shape - centre) for shape, centre in zip(shapes, centres, strict=True)],
            np.empty((len(theta), problem.weights.shape[-1])),
        )[:-1],
        axis=1,
    )
    loss = np.atleast_2d(np.exp(problem.log_loss))
    weighted = basis * (problem.weights / loss**2)[:, None, :]
    normal = weighted @ basis.transpose(0, 2, 1)
    _diagonal(normal)[:] *= 1 + 1e-9  # exponents of 0 make two terms equal
    linear = np.linalg.solve(normal, weighted @ loss[:, :, None])[:, :, 0]
    usable = (linear > 0).all(axis=1)
    intercepts = np.log(linear[usable]) - np.concatenate(centres, axis=1)[usable]
    projected = theta.copy()
    projected[usable, :n_terms] = intercepts
    return np.clip(projected, problem.lower, problem.upper)


def _descend(problem, theta) -> Solution:
    """Damped Newton steps until every start is at rest."""
    theta = _project_linear(problem, theta)
    residuals, shares = _residuals(problem, theta)
    objective = problem.huber_sum(residuals)
    model = _curvature(problem, theta, residuals, shares, near=np.zeros(len(theta), bool))
    damping = np.full(len(theta), DAMPING_START)
    resting = np.zeros(len(theta), int)
    active = np.arange(len(theta))
    for _ in range(MAX_ITERATIONS):
        current = problem.rows(active)
        step = _step(current, theta[active], *(part[active] for part in model), damping[active])
        proposed = np.clip(theta[active] + step, problem.lower, problem.upper)
        residuals, shares = _residuals(current, proposed)
        value = current.huber_sum(residuals)
        better = value < objective[active]
        moved = active[better]
        decrease = 1 - value[better] / objective[moved]
        damping[moved] = np.maximum(damping[moved] * DAMPING_DOWN, DAMPING_MIN)
        damping[active[~better]] *= DAMPING_UP
        resting[moved] = np.where(decrease < AT_REST, resting[moved] + 1, 0)
        theta[moved], objective[moved] = proposed[better], value[better]
        if moved.size:
            kept = [share[better] for share in shares]
            parts = _curvature(
                problem.rows(moved), theta[moved], residuals[better], kept, decrease < NEAR
            )
            for whole, part in zip(model, parts, strict=True):
                whole[moved] = part
        active = active[(damping[active] < DAMPING_MAX) & (resting[active] < 2)]
        if not active.size:
            break
    return Solution(theta, objective)


def _residuals(problem, theta):
    log_loss, shares = problem.law.log_loss(theta, problem.design)
    return log_loss - problem.log_loss, shares


def _curvature(problem, theta, residuals, shares, near):
    """Hessian [S, p, p], its reweighted diagonal [S, p] for the damping, and gradient [S, p]."""
    jacobian = problem.law.gradient(theta, problem.design, shares)
    size = np.abs(residuals)
    reweighted = problem.weights * (problem.delta / np.maximum(size, problem.delta))
    gradient = (jacobian @ (reweighted * residuals)[:, :, None])[:, :, 0]
    diagonal = ((jacobian * jacobian) @ reweighted[:, :, None])[:, :, 0]
    curving = np.where(near[:, None] & (size > problem.delta), 0.0, reweighted)
    hessian = (jacobian * curving[:, None, :]) @ jacobian.transpose(0, 2, 1)
    return hessian, diagonal, gradient


def _step(problem, theta, hessian, diagonal, gradient, damping) -> np.ndarray:
    """Solve the damped system over the coordinates that may still move."""
    floor = 1e-12 * diagonal.max(axis=1, keepdims=True) + np.finfo(float).tiny
    matrix = hessian
    _diagonal(matrix)[:] += damping[:, None] * np.maximum(diagonal, floor)
    stopped = (theta <= problem.lower) & (gradient > 0)
    stopped |= (theta >= problem.upper) & (gradient < 0)
    stopped |= ~problem.free
    if stopped.any():
        matrix = np.where(stopped[:, :, None] | stopped[:, None, :], 0.0, matrix)
        _diagonal(matrix)[stopped] = 1.0
        gradient = np.where(stopped, 0.0, gradient)
    return -np.linalg.solve(matrix, gradient[:, :, None])[:, :, 0]


def _diagonal(matrices: np.ndarray) -> np.ndarray:
    """A writable view [S, p] of the diagonals of [S, p, p]."""
    return np.einsum("sii->si", matrices)
