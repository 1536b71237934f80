"""Specs of runs: what is refused, that a file keeps them exactly, and that a name is one run."""

import json
from dataclasses import fields, replace

import pytest

from looped import ConfigError, ModelConfig, accounting, d_model_of_width
from looped.registry.schema import COLUMNS
from looped.spec import RunSpec, TrainConfig
from looped.studies import RECIPES
from looped.studies.base import TrainOverrides
from looped.studies.laptop import laptop_run
from looped.studies.paper import BATCH_TOKENS, paper_run

MODEL = ModelConfig(d_model=64, d_head=32, n_recur=4, n_loop=4, variant="linear", seq_len=256)
TRAIN = TrainConfig(n_tokens=2**16, batch_rows=8, ref_tokens=1e6)
SPEC = RunSpec(model=MODEL, train=TRAIN, corpus="laptop")

OTHER_MODEL = {
    "d_model": 96,
    "d_head": 64,
    "n_recur": 2,
    "n_prelude": 1,
    "n_loop": 8,
    "n_coda": 0,
    "variant": "additive",
    "bptt": 2,
    "n_lanes": 3,
    "vocab_size": 4096,
    "vocab_used": 32_000,
    "seq_len": 512,
}
OTHER_TRAIN = {
    "n_tokens": 2**17,
    "batch_rows": 16,
    "lr": 0.02,
    "lr_embed": 0.2,
    "lr_unembed": 0.005,
    "lr_norm": 0.006,
    "lr_lanes": 0.02,
    "lr_final": 0.2,
    "momentum": 0.9,
    "betas": (0.9, 0.95),
    "eps": 1e-8,
    "ref_d_model": 64,
    "ref_tokens": None,
    "ref_batch_tokens": 2048,
    "seed": 1,
}
OTHER_RUN = {"corpus": "fineweb-edu", "case": "truncated", "budget": SPEC.flops}
CHANGED = [
    *(replace(SPEC, model=replace(MODEL, **{k: v})) for k, v in OTHER_MODEL.items()),
    *(replace(SPEC, train=replace(TRAIN, **{k: v})) for k, v in OTHER_TRAIN.items()),
    *(replace(SPEC, **{k: v}) for k, v in OTHER_RUN.items()),
]


def through_json(spec):
    return json.loads(json.dumps(spec.to_dict()))


def shuffled(values):
    """The same values with the keys of every level in the opposite order."""
    if not isinstance(values, dict):
        return values
    return {key: shuffled(values[key]) for key in reversed(values)}


@pytest.mark.parametrize("spec", [SPEC, *CHANGED, paper_run(10, 4, budget=1e18), laptop_run()])
def test_spec_survives_json(spec):
    again = RunSpec.from_dict(through_json(spec))
    assert again == spec
    assert again.run_id == spec.run_id
    assert again.to_dict() == spec.to_dict()


def test_run_id_is_a_name_of_sixteen_digits_that_no_key_order_changes():
    assert RunSpec.from_dict(shuffled(through_json(SPEC))).run_id == SPEC.run_id
    assert len(SPEC.run_id) == 16
    int(SPEC.run_id, 16)


def test_every_field_changes_the_run_id():
    names = {f.name for cls in (ModelConfig, TrainConfig) for f in fields(cls)}
    assert names == set(OTHER_MODEL) | set(OTHER_TRAIN)
    assert {f.name for f in fields(RunSpec)} == {"model", "train"} | set(OTHER_RUN)
    ids = {SPEC.run_id, *(spec.run_id for spec in CHANGED)}
    assert len(ids) == 1 + len(CHANGED)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_tokens": 0}, "n_tokens: got 0"),
        ({"n_tokens": 2.0**16}, "n_tokens: got 65536.0, expected a whole number"),
        ({"batch_rows": 0}, "batch_rows: got 0"),
        ({"seed": -1}, "seed: got -1"),
        ({"seed": 2**63}, r"seed: got 9223372036854775808, expected less than 2\^63"),
        ({"lr": 0}, "lr: got 0, expected a number of more than 0"),
        ({"lr": float("nan")}, "lr: got nan"),
        ({"lr": float("inf")}, "lr: got inf"),
        ({"lr": "0.1"}, "lr: got '0.1'"),
        ({"lr": True}, "lr: got True"),
        ({"lr_embed": -0.1}, "lr_embed: got -0.1"),
        ({"lr_unembed": 0}, "lr_unembed: got 0"),
        ({"lr_norm": 0}, "lr_norm: got 0"),
        ({"lr_lanes": 0}, "lr_lanes: got 0"),
        ({"eps": 0}, "eps: got 0"),
        ({"ref_d_model": 0}, "ref_d_model: got 0"),
        ({"ref_tokens": -1}, "ref_tokens: got -1"),
        ({"ref_batch_tokens": 0}, "ref_batch_tokens: got 0"),
        ({"lr_final": 1.1}, "lr_final: got 1.1, expected a number of at least 0 and at most 1"),
        ({"lr_final": -0.1}, "lr_final: got -0.1"),
        ({"momentum": 1}, "momentum: got 1, expected less than 1"),
        ({"betas": (0.9,)}, r"betas: got \(0.9,\), expected two numbers"),
        ({"betas": (0.9, 1.0)}, "betas: got 1.0"),
    ],
)
def test_settings_that_cannot_train_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**{"n_tokens": 2**16} | values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"corpus": ""}, "corpus: got '', expected a str"),
        ({"case": ""}, "case: got '', expected a str"),
        ({"train": None}, "train: got None, expected a TrainConfig"),
        ({"budget": 0}, "budget: got 0"),
        ({"budget": 1e12}, "65536 tokens, the nearest whole number of batches, cost"),
        ({"model": None}, "model: got None, expected a ModelConfig"),
        ({"corpus": 3}, "corpus: got 3, expected a str"),
        ({"budget": float("inf")}, "budget: got inf"),
    ],
)
def test_runs_that_cannot_be_named_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        replace(SPEC, **values)


@pytest.mark.parametrize(("n_tokens", "nearest"), [(5000, 4096), (100, 2048), (2049, 2048)])
def test_part_of_a_batch_is_refused_and_a_whole_number_of_them_offered(n_tokens, nearest):
    with pytest.raises(ConfigError, match=f"the 2048 tokens.*; the nearest multiple is {nearest}"):
        replace(SPEC, train=replace(TRAIN, n_tokens=n_tokens))
    assert replace(SPEC, train=replace(TRAIN, n_tokens=nearest)).n_steps == nearest // 2048


def remove(path):
    return lambda values: (values[path[0]] if len(path) > 1 else values).pop(path[-1])


def add(path):
    return lambda values: (values[path[0]] if len(path) > 1 else values).update({path[-1]: 1})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (add(["steps"]), r"field of RunSpec: got 'steps', expected one of .*corpus"),
        (add(["train", "warmup"]), "field of TrainConfig: got 'warmup'"),
        (add(["model", "depth"]), "field of ModelConfig: got 'depth'"),
        (remove(["corpus"]), r"RunSpec: missing fields \['corpus'\]"),
        (remove(["train"]), r"RunSpec: missing fields \['train'\]"),
        (remove(["train", "n_tokens"]), r"TrainConfig: missing fields \['n_tokens'\]"),
    ],
)
def test_files_with_other_fields_are_refused(edit, message):
    values = through_json(SPEC)
    edit(values)
    with pytest.raises(ConfigError, match=message):
        RunSpec.from_dict(values)


def test_from_dict_leaves_its_argument_alone():
    values = through_json(SPEC)
    RunSpec.from_dict(values)
    assert values == through_json(SPEC)


@pytest.mark.parametrize("n_recur", [1, 2, 4, 8])
@pytest.mark.parametrize(("width", "budget"), [(6, 4.64e17), (34, 2.15e19)])
def test_paper_run_reads_the_tokens_of_its_budget(width, n_recur, budget):
    spec = paper_run(width, n_recur, budget=budget)
    assert spec.train.n_tokens == accounting.tokens_at_budget(spec.model, budget, BATCH_TOKENS)
    assert spec.model.d_model == d_model_of_width(width)
    assert spec.batch_tokens == 262_144
    spent = spec.train.n_tokens * accounting.flops_per_token(spec.model)
    assert abs(spent - budget) <= 262_144 * accounting.flops_per_token(spec.model) / 2
    assert (spec.budget, spec.corpus, spec.case) == (budget, "fineweb-edu", "baseline")


def test_extrapolation_run_has_the_papers_steps():
    spec = paper_run(34, 4, n_tokens=89_645 * 524_288, batch_rows=256)
    assert (spec.n_steps, spec.batch_tokens) == (89_645, 524_288)
    assert spec.budget is None


def test_recipe_takes_settings_and_case():
    spec = laptop_run(32, 2, budget=1e12, bptt=1, case="truncated", seed=3, lr=0.04, batch_rows=16)
    assert (spec.case, spec.model.bptt) == ("truncated", 1)
    assert (spec.train.seed, spec.train.lr, spec.batch_tokens) == (3, 0.04, 4096)


@pytest.mark.parametrize("n_recur", [1, 2, 4, 8])
def test_laptop_stack_has_ten_layers_whatever_the_recurrence(n_recur):
    assert laptop_run(n_recur=n_recur).model.n_layers == 10


@pytest.mark.parametrize("recipe", RECIPES.values())
def test_budget_or_tokens_but_not_both(recipe):
    with pytest.raises(ValueError, match="give either budget"):
        recipe(10 * 64, budget=1e18, n_tokens=262_144)


def test_paper_run_needs_budget_or_tokens():
    with pytest.raises(ValueError, match="give either budget"):
        paper_run(10)


@pytest.mark.parametrize(
    ("recipe", "argument", "meant"),
    [
        (paper_run, "batch_row", "batch_rows"),
        (laptop_run, "lr_embd", "lr_embed"),
        (laptop_run, "d_mdoel", "d_model"),
        (laptop_run, "n_token", "n_tokens"),
    ],
)
def test_a_misspelt_argument_of_a_recipe_says_which_one_was_meant(recipe, argument, meant):
    with pytest.raises(ConfigError, match=f"{recipe.__name__}: got '{argument}'.*mean '{meant}'"):
        recipe(640, **{argument: 1})


def test_recipes_take_every_field_of_the_training_but_the_tokens():
    assert {f.name for f in fields(TrainConfig)} == {"n_tokens", *TrainOverrides.__annotations__}


def test_a_spec_is_a_row_of_the_table_of_runs():
    row = SPEC.row()
    assert set(row) < set(COLUMNS)
    assert set(COLUMNS) - set(row) == {"val_loss", "val_loss_se", "source", "flag"}
    assert row["budget"] == SPEC.flops == row["n_tokens"] * row["flops_per_token"]
    assert (row["run_id"], row["n_loop"], row["variant"]) == (SPEC.run_id, 4, "linear")
    assert row["n_params"] == accounting.n_params(MODEL)
