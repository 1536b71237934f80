"""The paper's five reasoning primitives (appendix H), drawn anew from a seed.

    induction_head       d -> q, t -> a, ... t ->                        a
    varassign_d0_math    g = 3, b = 17, ...; b =                         17
    varassign_d1_math    g = 3, b = 17, ..., k = b, f = g, ...; k =      17
    varassign_d0_code    the same, a statement a line, then: print(b) #  17
    varassign_d1_code

The paper says: eight random pairs of key and value, then a key, 1,000 examples without shots; five
assignments of values from 1 to 25, at depth 1 five aliases of them, 1,000 examples with five shots.
It does not print its texts. Chosen here: names, keys and values of the induction head are single
lower-case letters; the values of an example all differ; each assigned variable has one alias, which
is what a question of depth 1 asks for; shots are solved examples of the same kind, with an empty
line between. So losses compare among models that are evaluated here, and not with the paper's.
"""

import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from looped.config import require_whole

LETTERS = list(string.ascii_lowercase)
PAIRS = 8
VARIABLES = 5
VALUES = 25
N_EXAMPLES = 1000


@dataclass(frozen=True)
class Example:
    """A text and how it goes on; only the continuation counts."""

    context: str  # does not end in a space
    continuation: str  # begins with one


@dataclass(frozen=True)
class Primitive:
    """A task: what a solver without any skill could know of its answers, and how to draw one."""

    n_answers: int  # possible answers of the task
    n_listed: int  # those that the question itself shows
    n_shots: int  # the paper's
    draw: Callable[[np.random.Generator], Example]


def _induction(rng) -> Example:
    keys = rng.choice(LETTERS, PAIRS, replace=False)
    values = rng.choice(LETTERS, PAIRS, replace=False)
    asked = rng.integers(PAIRS)
    pairs = [f"{key} -> {value}" for key, value in zip(keys, values, strict=True)]
    return Example(", ".join([*pairs, f"{keys[asked]} ->"]), f" {values[asked]}")


def _assignment(rng, depth: int, code: bool) -> Example:
    names = rng.choice(LETTERS, 2 * VARIABLES, replace=False)
    variables, aliases = names[:VARIABLES], names[VARIABLES:]
    values = 1 + rng.choice(VALUES, VARIABLES, replace=False)
    lines = [f"{name} = {value}" for name, value in zip(variables, values, strict=True)]
    asked, aliased = rng.integers(VARIABLES), rng.permutation(VARIABLES)
    name, answer = variables[asked], values[asked]
    if depth:
        lines += [f"{alias} = {variables[i]}" for alias, i in zip(aliases, aliased, strict=True)]
        name, answer = aliases[asked], values[aliased[asked]]
    question = "\n".join([*lines, f"print({name}) #"]) if code else f"{', '.join(lines)}; {name} ="
    return Example(question, f" {answer}")


PRIMITIVES: dict[str, Primitive] = {
    "induction_head": Primitive(len(LETTERS), PAIRS, 0, _induction)
} | {
    f"varassign_d{depth}_{style}": Primitive(
        VALUES, VARIABLES, 5, partial(_assignment, depth=depth, code=style == "code")
    )
    for depth in (0, 1)
    for style in ("math", "code")
}
"""Task -> how it is drawn."""


def get_primitive(task: str) -> Primitive:
    """A task by name. Raises ValueError for an unknown one."""
    if task not in PRIMITIVES:
        raise ValueError(f"task: got {task!r}, expected one of {', '.join(PRIMITIVES)}")
    return PRIMITIVES[task]


def draw_examples(
    task: str, n_examples: int = N_EXAMPLES, n_shots: int | None = None, seed: int = 0
) -> list[Example]:
    """Examples of a task; the same arguments give the same texts on every machine.

    An example of fewer shots ends in the same question, and fewer examples are the first of more.

    Args:
        n_shots: solved examples before each question; None for the paper's number.

    Raises:
        ValueError: an unknown task, or a number out of range.
    """
    primitive = get_primitive(task)
    n_shots = primitive.n_shots if n_shots is None else n_shots
    require_whole("n_examples", n_examples, 1)
    require_whole("n_shots", n_shots, 0)
    require_whole("seed", seed, 0)
    return [_with_shots(primitive, n_shots, [seed, number]) for number in range(n_examples)]


def _with_shots(primitive, n_shots, seed) -> Example:
    rng = np.random.default_rng(seed)
    last, *shots = [primitive.draw(rng) for _ in range(1 + n_shots)]
    solved = [shot.context + shot.continuation for shot in shots]
    return Example("\n\n".join([*solved, last.context]), last.continuation)
