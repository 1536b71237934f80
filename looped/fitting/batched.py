"""All starts at once: damped Newton steps on the Huber sum, in NumPy. The default solver.

Three ideas make it fast and sure:

* The law is linear in A, B, E once its exponents are held, so each start first takes its weighted
  linear least squares of them (variable projection), where that is positive.
* Far from the optimum the Hessian is that of the iteratively reweighted quadratic above the Huber
  sum, which always descends; near it the residuals beyond δ carry next to no curvature,
  which converges faster than linearly in practice. Levenberg-Marquardt damping guards both.
* Starts that have come to rest leave the batch.
"""

import numpy as np

from looped.fitting.problem import BATCH, Problem, Solution

MAX_ITERATIONS = 2000  # on small tables most starts creep along a flat valley or a bound
PATIENCE, STRAGGLERS = 100, 0.05  # from there on, a share of a fit's starts is not waited for
AT_REST = 1e-10  # relative decrease of the objective that counts as none
NEAR = 1e-2  # relative decrease below which the curvature is the Huber sum's own
OUTSIDE = 0.03  # of the reweighted curvature, kept beyond δ then: it scales the damping
DAMPING_START, DAMPING_MIN, DAMPING_MAX = 1e-3, 1e-12, 1e6
DAMPING_DOWN, DAMPING_UP, RISE_UP = 0.3, 3.0, 2.0  # steps refused in a row raise it ever faster


def solve_batched(problem: Problem, starts: np.ndarray) -> Solution:
    """Minimise from every start [S, p]."""
    size = max(1, BATCH // problem.log_loss.shape[-1])
    chunks = [slice(i, i + size) for i in range(0, len(starts), size)]
    solved = [_descend(problem.rows(chunk), starts[chunk]) for chunk in chunks]
    theta, objective = (np.concatenate(parts) for parts in zip(*solved, strict=True))
    return Solution(theta, objective)


def _project_linear(problem, theta) -> np.ndarray:
    """The starts with A, B, E at their linear least squares given the exponents, if positive."""
    n_terms = len(problem.law.intercepts)
    if not problem.free[:n_terms].all():
        return theta.copy()
    shapes, _ = problem.law.shapes(theta, problem.design)
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
    prediction = problem.law.predict(theta, problem.design)
    objective = problem.huber_sum(prediction.log_loss - problem.log_loss)
    model = _curvature(problem, prediction, near=np.zeros(len(theta), bool))
    damping = np.full(len(theta), DAMPING_START)
    rise = np.full(len(theta), DAMPING_UP)
    at_rest = np.zeros(len(theta), bool)
    active = np.arange(len(theta))
    one_fit = problem.weights.ndim == problem.log_loss.ndim == 1  # else each row counts
    few = STRAGGLERS * len(theta) if one_fit else 0
    for iteration in range(MAX_ITERATIONS):
        current = problem.rows(active)
        step = _step(current, theta[active], *(part[active] for part in model), damping[active])
        proposed = np.clip(theta[active] + step, problem.lower, problem.upper)
        prediction = problem.law.predict(proposed, problem.design)
        value = current.huber_sum(prediction.log_loss - current.log_loss)
        better = value < objective[active]
        moved, kept = active[better], active[~better]
        decrease = 1 - value[better] / objective[moved]
        theta[moved], objective[moved] = proposed[better], value[better]
        at_rest[moved] = decrease < AT_REST
        damping[moved] = np.maximum(damping[moved] * DAMPING_DOWN, DAMPING_MIN)
        damping[kept] *= rise[kept]
        rise[moved] = DAMPING_UP
        rise[kept] *= RISE_UP
        if moved.size:
            parts = _curvature(problem.rows(moved), prediction.rows(better), decrease < NEAR)
            for whole, part in zip(model, parts, strict=True):
                whole[moved] = part
        active = active[(damping[active] < DAMPING_MAX) & ~at_rest[active]]
        if len(active) <= (few if iteration > PATIENCE else 0):
            break
    return Solution(theta, objective)


def _curvature(problem, prediction, near):
    """Hessian [S, p, p] and gradient [S, p] of the objective."""
    jacobian = prediction.gradient()
    residuals = prediction.log_loss - problem.log_loss
    beyond = np.maximum(np.abs(residuals), problem.delta) / problem.delta
    reweighted = problem.weights / beyond
    gradient = (jacobian @ (reweighted * residuals)[:, :, None])[:, :, 0]
    outside = near[:, None] & (beyond > 1)
    curving = np.where(outside, OUTSIDE * reweighted, reweighted)
    jacobian *= np.sqrt(curving)[:, None, :]  # in place: a second array of this size costs more
    return jacobian @ jacobian.transpose(0, 2, 1), gradient


def _step(problem, theta, hessian, gradient, damping) -> np.ndarray:
    """Solve the damped system over the coordinates that may still move."""
    matrix = hessian
    diagonal = _diagonal(matrix)
    floor = 1e-12 * diagonal.max(axis=1, keepdims=True) + np.finfo(float).tiny
    diagonal += damping[:, None] * np.maximum(diagonal, floor)
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
