"""The synthetic reasoning tasks: the text of every question contains the answer."""

import re
from collections import Counter

import pytest

from looped.evaluate.primitives import PRIMITIVES, draw_examples


def solved(question: str) -> str:
    """The answer to one question, aliases resolved."""
    if "->" in question:
        *pairs, query = question.split(", ")
        return dict(pair.split(" -> ") for pair in pairs)[query.removesuffix(" ->")]
    query = re.search(r"print\((\w)\) #$|; (\w) =$", question)
    answer = query[1] or query[2]
    values = dict(re.findall(r"(\w) = (\w+)", question))
    while answer in values:
        answer = values[answer]
    return answer


@pytest.mark.parametrize("task", PRIMITIVES)
def test_the_continuation_is_the_answer_in_the_text(task):
    for example in draw_examples(task, 200, seed=3):
        *shots, question = example.context.split("\n\n")
        assert example.continuation == f" {solved(question)}"
        assert len(shots) == PRIMITIVES[task].n_shots
        for shot in shots:
            question, _, answer = shot.rpartition(" ")
            assert answer == solved(question)


@pytest.mark.parametrize("task", PRIMITIVES)
def test_the_numbers_of_answers_are_those_of_the_chance_levels(task):
    primitive = PRIMITIVES[task]
    examples = draw_examples(task, 2000, n_shots=0, seed=1)
    answers = Counter(example.continuation for example in examples)
    assert len(answers) == primitive.n_answers
    # Uniform: chi-square over its degrees of freedom is about 1; 2.5 is beyond 1e-4 for 24 or 25.
    expected = len(examples) / len(answers)
    spread = sum((count - expected) ** 2 / expected for count in answers.values())
    assert spread / (len(answers) - 1) < 2.5
    listed = re.compile(r"-> (\w)" if task == "induction_head" else r"= (\d+)")
    for example in examples[:200]:
        found = listed.findall(example.context)
        assert len(found) == len(set(found)) == primitive.n_listed
        assert example.continuation.strip() in found


def test_the_position_of_the_answer_is_uniform():
    for task, n_listed in {"induction_head": 8, "varassign_d1_math": 5}.items():
        examples = draw_examples(task, 2000, n_shots=0)
        places = Counter(
            re.findall(r"(?:->|=) (\w+)[,;]", e.context)[:n_listed].index(e.continuation.strip())
            for e in examples
        )
        assert set(places) == set(range(n_listed))
        assert max(places.values()) < 1.3 * 2000 / n_listed


def test_a_seed_gives_the_same_texts():
    once = draw_examples("varassign_d1_code", 20, seed=5)
    assert once == draw_examples("varassign_d1_code", 20, seed=5)
    assert once[:7] == draw_examples("varassign_d1_code", 7, seed=5)
    assert once != draw_examples("varassign_d1_code", 20, seed=6)
    bare = draw_examples("varassign_d1_code", 20, n_shots=0, seed=5)
    assert [e.continuation for e in bare] == [e.continuation for e in once]
    assert all(e.context.endswith(b.context) for e, b in zip(once, bare, strict=True))


def test_the_texts_are_those_of_the_docstring():
    (math,) = draw_examples("varassign_d1_math", 1, n_shots=0)
    (code,) = draw_examples("varassign_d1_code", 1, n_shots=0)
    assert re.fullmatch(r"(\w = \d+, ){5}(\w = \w, ){4}\w = \w; \w =", math.context)
    assert re.fullmatch(r"(\w = \d+\n){5}(\w = \w\n){5}print\(\w\) #", code.context)
    scope = {}
    exec(code.context, {"print": lambda value: scope.update(value=value)})  # it is a program
    assert f" {scope['value']}" == code.continuation


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"task": "induction"}, "induction_head"),
        ({"n_examples": 0}, "n_examples"),
        ({"n_shots": -1}, "n_shots"),
        ({"seed": 0.5}, "seed"),
    ],
)
def test_bad_arguments_are_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        draw_examples(**({"task": "induction_head"} | arguments))
