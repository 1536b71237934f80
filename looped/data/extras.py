"""Packages that come with an extra of looped, imported where they are used."""

from importlib import import_module
from types import ModuleType

from looped.errors import ConfigError


def need(module: str, extra: str = "train") -> ModuleType:
    """The module, imported. Raises ConfigError naming the extra that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise
        raise ConfigError(
            f"{error.name} is not installed, which this needs: pip install 'looped[{extra}]'"
        ) from error
