"""The laws by name. A new law is one file here and one line below."""

from looped.errors import ConfigError
from looped.laws.base import Law
from looped.laws.chinchilla import CHINCHILLA
from looped.laws.joint import JOINT

LAWS: dict[str, Law] = {"chinchilla": CHINCHILLA, "joint": JOINT}


def get_law(name: str) -> Law:
    """The law of that name. Raises ConfigError if there is none."""
    if name not in LAWS:
        raise ConfigError(f"law: got {name!r}, expected one of {sorted(LAWS)}")
    return LAWS[name]
