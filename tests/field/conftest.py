"""Fixtures of the field cases."""

from tests.durability.deaths import quick

__all__ = ("quick",)
