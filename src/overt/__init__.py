"""Agents with nothing to hide: agent loop, teams, budgets, and human approvals that park a run."""

__all__ = ()
