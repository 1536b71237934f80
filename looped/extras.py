"""What the optional parts of the package need, and whether it is installed."""

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from types import ModuleType

from looped.errors import ConfigError

_OF_EXTRA = re.compile(r"(?P<name>[\w.-]+).*\bextra == ['\"](?P<extra>[\w.-]+)['\"]")


def need(module: str, extra: str = "train") -> ModuleType:
    """The module, imported where it is used. Raises ConfigError naming the extra it comes with."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise
        raise ConfigError(
            f"{error.name} is not installed, which this needs: pip install 'looped[{extra}]'"
        ) from error


def missing_packages(*extras: str) -> list[str]:
    """Packages of these extras that are not installed.

    Raises:
        ValueError: an extra that the package does not have.
    """
    found = [match for line in requires("looped") or [] if (match := _OF_EXTRA.match(line))]
    if unknown := set(extras) - {match["extra"] for match in found}:
        raise ValueError(f"extra: got {sorted(unknown)}, which pyproject.toml does not have")
    return [m["name"] for m in found if m["extra"] in extras and not _installed(m["name"])]


def _installed(package) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
