"""The throughput database of Hops: one DuckDB file, and the only place that knows DuckDB.

    with Store.open(path, Mode.WRITE) as store:
        store.record([Measurement(ProfileKey("resnet50", "alice"), "a100", 4, 1, speed, now)])
        layers = store.layers(profiles, gpu_types)

What goes in are records that refuse nonsense as they are made; what comes out are columns.
"""

from hetsched_core.store.database import Mode
from hetsched_core.store.errors import (
    NotAStoreError,
    StoreDamagedError,
    StoreError,
    StoreHeldError,
    StoreVersionError,
    StoreWriteError,
)
from hetsched_core.store.following import FollowedRun, JobProgress
from hetsched_core.store.ingest import Ingested, RejectedLines
from hetsched_core.store.jobs import JobEvent, StoredJob, StoredRange
from hetsched_core.store.layers import SpeedColumns, StoredLayers, TheoryColumns
from hetsched_core.store.records import (
    SITE,
    BandwidthMeasurement,
    BandwidthTerm,
    BasicTimes,
    DataTimes,
    Decision,
    Measurement,
    ProfileKey,
)
from hetsched_core.store.spool_files import FileReject, SpoolRun
from hetsched_core.store.store import IN_MEMORY, Store
from hetsched_core.store.summary import BandwidthSummary, ProfileSummary, Summary
from hetsched_core.store.transfer import Format, StoredSpeed, read_speed_csv, read_speed_tables
from hetsched_core.throughput.moments import Moments

__all__ = [
    "IN_MEMORY",
    "SITE",
    "BandwidthMeasurement",
    "BandwidthSummary",
    "BandwidthTerm",
    "BasicTimes",
    "DataTimes",
    "Decision",
    "FileReject",
    "FollowedRun",
    "Format",
    "Ingested",
    "JobEvent",
    "JobProgress",
    "Measurement",
    "Mode",
    "Moments",
    "NotAStoreError",
    "ProfileKey",
    "ProfileSummary",
    "RejectedLines",
    "SpeedColumns",
    "SpoolRun",
    "Store",
    "StoreDamagedError",
    "StoreError",
    "StoreHeldError",
    "StoreVersionError",
    "StoreWriteError",
    "StoredJob",
    "StoredLayers",
    "StoredRange",
    "StoredSpeed",
    "Summary",
    "TheoryColumns",
    "read_speed_csv",
    "read_speed_tables",
]
