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
SAME = 1e-3  # of the box and of the objective: candidates closer than that are one
DAMPING_START, DAMPING_MIN, DAMPING_MAX = 1e-3, 1e-12, 1e6
DAMPING_DOWN, DAMPING_UP, RISE_UP = 0.3, 3.0, 2.0  # steps refused in a row raise it ever faster
RETAINED = 3_900_000  # numbers, just below glibc's limit of 32 MB; else a third of the time goes
# into returning the blocks of each step to the system and getting them back

Rounds = tuple[tuple[int, int], ...]


def solve_batched(problem: Problem, starts: np.ndarray) -> Solution:
    """Minimise from every start [S, p]."""
    descent = _Descent(problem, starts)
    one_fit = problem.weights.ndim == problem.log_loss.ndim == 1  # else each row counts
    few = int(STRAGGLERS * len(starts)) if one_fit else 0
    descent.advance(MAX_ITERATIONS, PATIENCE, few)
    return Solution(descent.theta, descent.objective)


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


def race(
    problem: Problem, candidates: np.ndarray, rounds: Rounds, at_rest: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The best end of each row's candidates, most of which leave the race early.

    After each round the candidates of a row are compared. Of those at the same place only the
    first remains, then only the lowest. The survivors of the last round descend to the end.

    Args:
        problem: with one row of weights [R, n] per row of candidates.
        candidates: coordinates [R, m, p].
        rounds: iterations of each round, and how many candidates survive it.
        at_rest: number of the first candidates that are optima of their row and do not move.

    Returns:
        Coordinates of the best end [R, p]; objectives of all ends [R, m], infinite for candidates
        that left the race.
    """
    n_rows, each, n_coordinates = candidates.shape
    rows = np.repeat(np.arange(n_rows), each)
    descent = _Descent(problem.rows(rows), candidates.reshape(-1, n_coordinates))
    if at_rest:
        descent.active = np.flatnonzero(np.arange(n_rows * each) % each >= at_rest)
    dropped = np.zeros((n_rows, each), bool)
    for iterations, survivors in rounds:
        descent.advance(iterations)
        objective = np.where(dropped, np.inf, descent.objective.reshape(n_rows, each))
        dropped |= _same_place(problem, descent.theta.reshape(candidates.shape), objective)
        objective[dropped] = np.inf
        dropped |= objective.argsort(axis=1).argsort(axis=1) >= survivors
        descent.active = descent.active[~dropped.ravel()[descent.active]]
    descent.advance(MAX_ITERATIONS)
    objective = np.where(dropped, np.inf, descent.objective.reshape(n_rows, each))
    theta = descent.theta.reshape(candidates.shape)
    return theta[np.arange(n_rows), objective.argmin(axis=1)], objective


def _same_place(problem, theta, objective) -> np.ndarray:
    """Which candidates [R, m] are where an earlier candidate of their row is."""
    width = SAME * np.where(problem.free, problem.upper - problem.lower, 1.0)
    near = (np.abs(theta[:, :, None] - theta[:, None]) <= width).all(axis=-1)
    value, other = objective[:, :, None], objective[:, None]
    with np.errstate(invalid="ignore"):  # infinite where a candidate has left already
        near &= np.abs(value - other) <= SAME * np.minimum(value, other)
    return np.tril(near, k=-1).any(axis=2)


class _Descent:
    """Damped Newton steps from many starts; those in `active` still move.

    Every step works on blocks of starts that fit the cache. All starts share one loop, so that the
    last ones, which may creep for long, are one small batch.
    """

    def __init__(self, problem: Problem, starts: np.ndarray):
        n_starts, p = starts.shape
        np.empty(RETAINED)  # freed at once: from now on the C library keeps blocks up to this size
        self.problem = problem
        self.block = max(1, BATCH // problem.log_loss.shape[-1])
        self.theta, self.objective = np.empty((n_starts, p)), np.empty(n_starts)
        self.hessian, self.gradient = np.empty((n_starts, p, p)), np.empty((n_starts, p))
        self.damping = np.full(n_starts, DAMPING_START)
        self.rise = np.full(n_starts, DAMPING_UP)
        self.at_rest = np.zeros(n_starts, bool)
        self.active = np.arange(n_starts)
        for rows in self._blocks():
            some = problem.rows(rows)
            self.theta[rows], prediction, self.objective[rows] = _begin(some, starts[rows])
            far = np.zeros(len(rows), bool)
            self.hessian[rows], self.gradient[rows] = _curvature(some, prediction, far)

    def advance(self, iterations: int, patience: int = 0, few: int = 0) -> None:
        """Move until all are at rest; after `patience` steps, until only `few` are not."""
        for iteration in range(iterations):
            if len(self.active) <= (few if iteration > patience else 0):
                break
            for rows in self._blocks():
                self._move(rows)
            at_rest = self.at_rest[self.active] | (self.damping[self.active] >= DAMPING_MAX)
            self.active = self.active[~at_rest]

    def _blocks(self):
        return [self.active[i : i + self.block] for i in range(0, len(self.active), self.block)]

    def _move(self, rows):
        """One step of the starts `rows`, taken where it lowers the objective."""
        current = self.problem.rows(rows)
        theta, gradient = self.theta[rows], self.gradient[rows]
        step = _step(current, theta, self.hessian[rows], gradient, self.damping[rows])
        proposed = np.clip(theta + step, current.lower, current.upper)
        prediction = current.law.predict(proposed, current.design)
        value = current.huber_sum(prediction.log_loss - current.log_loss)
        better = value < self.objective[rows]
        moved, stayed = rows[better], rows[~better]
        self.damping[stayed] *= self.rise[stayed]
        self.rise[stayed] *= RISE_UP
        if not moved.size:
            return
        decrease = 1 - value[better] / self.objective[moved]
        self.theta[moved], self.objective[moved] = proposed[better], value[better]
        self.at_rest[moved] = decrease < AT_REST
        self.damping[moved] = np.maximum(self.damping[moved] * DAMPING_DOWN, DAMPING_MIN)
        self.rise[moved] = DAMPING_UP
        if stayed.size:
            current, prediction = self.problem.rows(moved), prediction.rows(better)
        self.hessian[moved], self.gradient[moved] = _curvature(current, prediction, decrease < NEAR)


def _begin(problem, theta):
    """The starts, their predictions and objectives: with A, B, E projected where that is lower."""
    ends = []
    for each in (theta, _project_linear(problem, theta)):
        prediction = problem.law.predict(each, problem.design)
        ends.append((each, prediction, problem.huber_sum(prediction.log_loss - problem.log_loss)))
    plain, projected = ends
    theta, prediction, objective = projected
    back = plain[2] < objective
    if back.any():
        theta = np.where(back[:, None], plain[0], theta)
        prediction = problem.law.predict(theta, problem.design)
        objective = np.minimum(plain[2], objective)
    return theta, prediction, objective


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
