"""Performs effects with anyio: the only place that owns tasks."""
