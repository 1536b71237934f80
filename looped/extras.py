"""Optional dependencies: import them with a clear error, and list the missing ones."""

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from types import ModuleType

from looped.errors import ConfigError, pick

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+).*\bextra == ['\"](?P<extra>[\w.-]+)['\"]")


def need(module: str, extra: str = "train") -> ModuleType:
    """An optional module, imported on first use.

    Args:
        module: name of the module, such as "pyarrow.parquet".
        extra: extra of this package that installs it.

    Raises:
        ConfigError: the module is not installed; the message names the extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise
        raise ConfigError(
            f"{error.name} is required but not installed: pip install 'looped[{extra}]'"
        ) from error


def missing_packages(*extras: str) -> list[str]:
    """Names of the packages of extras that are not installed.

    Raises:
        ConfigError: an extra that the package does not have.
    """
    matches = [match for line in requires("looped") or [] if (match := _REQUIREMENT.match(line))]
    known = {match["extra"]: None for match in matches}
    for extra in extras:
        pick("extra", extra, list(known))
    names = [match["name"] for match in matches if match["extra"] in extras]
    return [name for name in names if not _installed(name)]


def _installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
