"""The environment of a program under test."""

import os


def clean_environment():
    """This process's variables without those that Pelton's commands take for settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PELTON_")}
