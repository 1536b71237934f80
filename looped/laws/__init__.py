"""The forms of laws by name. A new law is one file here and one line below."""

from looped.errors import pick
from looped.laws.base import Form
from looped.laws.chinchilla import CHINCHILLA
from looped.laws.joint import JOINT

LAWS: dict[str, Form] = {"chinchilla": CHINCHILLA, "joint": JOINT}


def get_form(name: str) -> Form:
    """The form of the law with that name. Raises ConfigError for an unknown name."""
    form: Form = pick("law", name, LAWS)
    return form
