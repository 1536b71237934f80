"""The paper's five reasoning primitives (appendix H), generated from a seed.

    induction_head       d -> q, t -> a, ... t ->                        a
    varassign_d0_math    g = 3, b = 17, ...; b =                         17
    varassign_d1_math    g = 3, b = 17, ..., k = b, f = g, ...; k =      17
    varassign_d0_code    the same, one statement on each line, then: print(b) #  17
    varassign_d1_code

The paper specifies the induction head as eight random pairs of key and value, then a key, in 1,000
examples without shots; and variable assignment as five assignments of values from 1 to 25, at depth
1 with five aliases of them, in 1,000 examples with five shots. It does not print its texts. This
package chooses: names, keys and values of the induction head are single lower-case letters; all
values of an example differ; each assigned variable has one alias, and a question of depth 1 asks
for an alias; shots are solved examples of the same kind, separated by an empty line. Losses are
therefore comparable between models that are evaluated here, but not with those of the paper.
"""

import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from looped.config import require_whole
from looped.errors import pick

LETTERS = list(string.ascii_lowercase)
PAIRS = 8
VARIABLES = 5
VALUES = 25
N_EXAMPLES = 1000


@dataclass(frozen=True)
class Example:
    """A context and its continuation; only the continuation is scored."""

    context: str  # does not end in a space
    continuation: str  # begins with one


@dataclass(frozen=True)
class Primitive:
    """A task: numbers of answers, for its chance levels, and the generator of its examples."""

    n_answers: int  # possible answers of the task
    n_listed: int  # answers that are listed in a question
    n_shots: int  # of the paper
    draw: Callable[[np.random.Generator], Example]


def _induction(rng: np.random.Generator) -> Example:
    keys = rng.choice(LETTERS, PAIRS, replace=False)
    values = rng.choice(LETTERS, PAIRS, replace=False)
    query = rng.integers(PAIRS)
    pairs = [f"{key} -> {value}" for key, value in zip(keys, values, strict=True)]
    return Example(", ".join([*pairs, f"{keys[query]} ->"]), f" {values[query]}")


def _assignment(rng: np.random.Generator, depth: int, code: bool) -> Example:
    names = rng.choice(LETTERS, 2 * VARIABLES, replace=False)
    variables, aliases = names[:VARIABLES], names[VARIABLES:]
    values = 1 + rng.choice(VALUES, VARIABLES, replace=False)
    lines = [f"{name} = {value}" for name, value in zip(variables, values, strict=True)]
    query, aliased = rng.integers(VARIABLES), rng.permutation(VARIABLES)
    name, answer = variables[query], values[query]
    if depth:
        lines += [f"{alias} = {variables[i]}" for alias, i in zip(aliases, aliased, strict=True)]
        name, answer = aliases[query], values[aliased[query]]
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
"""The tasks by name."""


def get_primitive(task: str) -> Primitive:
    """A task by name. Raises ConfigError for an unknown one."""
    return pick("task", task, PRIMITIVES)


def draw_examples(
    task: str, n_examples: int = N_EXAMPLES, n_shots: int | None = None, seed: int = 0
) -> list[Example]:
    """Examples of a task; the same arguments give the same texts on every machine.

    With fewer shots an example ends in the same question; with a smaller `n_examples` the examples
    are the first of a larger one.

    Args:
        n_shots: solved examples before each question; None: the paper's number.

    Raises:
        ConfigError: an unknown task, or a number out of range.
    """
    primitive = get_primitive(task)
    n_shots = primitive.n_shots if n_shots is None else n_shots
    require_whole("n_examples", n_examples, 1)
    require_whole("n_shots", n_shots, 0)
    require_whole("seed", seed, 0)
    return [_with_shots(primitive, n_shots, [seed, number]) for number in range(n_examples)]


def _with_shots(primitive: Primitive, n_shots: int, seed: list[int]) -> Example:
    rng = np.random.default_rng(seed)
    last, *shots = [primitive.draw(rng) for _ in range(1 + n_shots)]
    solved = [shot.context + shot.continuation for shot in shots]
    return Example("\n\n".join([*solved, last.context]), last.continuation)
