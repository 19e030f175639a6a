"""What can be wrong with a store, in one tree.

    StoreError                 whatever keeps a store from being used
    ├── NotAStoreError         the file is not one of ours
    ├── StoreVersionError      the file was written by a newer hetsched or DuckDB
    ├── StoreHeldError         another process has the file open
    ├── StoreDamagedError      the file is ours, and damaged
    └── StoreWriteError        the disk is full or cannot be written

Whichever is raised: of the operation that raised it, nothing was kept.
"""

from hetsched_core.errors import HetschedError


class StoreError(HetschedError):
    """The store cannot be used; nothing in it has changed."""


class NotAStoreError(StoreError):
    """The file is no DuckDB file, or one that holds something else."""


class StoreVersionError(StoreError):
    """The file is newer than this program."""


class StoreHeldError(StoreError):
    """Another process has the file open; the message says which."""


class StoreDamagedError(StoreError):
    """What is in the file cannot be read back."""


class StoreWriteError(StoreError):
    """The disk is full or cannot be written; the operation left no trace and may be repeated."""
