from os import PathLike

from overt import Store as Store

class MemoryStore(Store):
    def __init__(self) -> None: ...

class SQLiteStore(Store):
    def __init__(self, path: str | PathLike[str]) -> None: ...
