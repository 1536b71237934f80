"""Configurations: which exist, and that they survive a file."""

import json

import pytest

from looped import ConfigError, ModelConfig, d_model_of_width, paper_config


@pytest.mark.parametrize("n_recur", [1, 2, 4, 8, 16])
def test_depth_is_the_same_for_every_recurrence(n_recur):
    assert paper_config(640, n_recur).n_layers == 20


@pytest.mark.parametrize(("n_recur", "variant"), [(1, "none"), (2, "linear"), (8, "linear")])
def test_paper_variant_is_linear_where_it_loops(n_recur, variant):
    assert paper_config(640, n_recur).variant == variant


@pytest.mark.parametrize("width", range(1, 40))
def test_d_model_is_the_least_multiple_of_128_that_holds_64_s(width):
    d_model = d_model_of_width(width)
    assert d_model % 128 == 0
    assert 0 <= d_model - 64 * width < 128


def test_config_survives_json():
    config = paper_config(640, 8, bptt=4)
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_unknown_field_is_named():
    with pytest.raises(ConfigError, match=r"ModelConfig: got 'depth', expected one of .*n_loop"):
        ModelConfig.from_dict({"d_model": 640, "depth": 20})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"d_model": 0}, "d_model: got 0"),
        ({"d_model": 640.0}, "d_model: got 640.0"),
        ({"d_model": True}, "d_model: got True"),
        ({"d_model": 640, "n_prelude": -1}, "n_prelude: got -1"),
        ({"d_model": 640, "n_loop": 0}, "n_loop: got 0"),
        ({"d_model": 640, "variant": "gated"}, "variant: got 'gated'.*hyperconnect"),
        ({"d_model": 640, "n_recur": 2}, "plain stack, got n_recur=2.*choose"),
        ({"d_model": 640, "n_recur": 2, "variant": "linear", "bptt": 0}, "bptt: got 0"),
        ({"d_model": 640, "n_recur": 2, "variant": "linear", "bptt": 3}, "3 recurrences.*use None"),
        ({"d_model": 640, "n_recur": 2, "variant": "hyperconnect", "bptt": 1}, "use bptt=None"),
    ],
)
def test_configurations_that_cannot_exist_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**values)


@pytest.mark.parametrize("n_recur", [0, -2, 3, 32])
def test_recurrences_that_change_the_depth_are_refused(n_recur):
    with pytest.raises(ConfigError, match=f"n_recur: got {n_recur}, expected a divisor of 16"):
        paper_config(640, n_recur)
