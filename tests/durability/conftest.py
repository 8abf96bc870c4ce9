"""Fixtures of the tests about death."""

from tests.durability.deaths import quick

__all__ = ("quick",)
