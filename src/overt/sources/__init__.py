"""Tools from elsewhere."""
