"""Writes files of events and segments in the default forms of pyarrow, pandas and DuckDB, for the test of the import.

usage: write.py DIR NOW_MS VISITOR...
"""

import datetime
import sys
import uuid

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

folder, now, visitors = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
times = [now - 1_000 * (n + 1) for n in range(len(visitors))]
later = now + 86_400_000


def path(name):
    return f"{folder}/{name}.parquet"


# pyarrow: each codec, dictionaries of text, timestamps of each unit, and UUID columns.
plain = pa.table({"visitor": visitors, "type": ["page"] * len(visitors), "at_ms": times})
for codec in ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]:
    pq.write_table(plain, path(f"events-pyarrow-{codec}"), compression=codec)
for unit, per_ms in [("ms", 1), ("us", 1_000), ("ns", 1_000_000)]:
    for zone in [None, "UTC"]:
        column = pa.array([time * per_ms for time in times], pa.timestamp(unit, zone))
        table = plain.set_column(2, "at_ms", column)
        pq.write_table(table, path(f"events-pyarrow-{unit}-{zone}"), version="2.6")
pq.write_table(plain.set_column(2, "at_ms", pa.array([time * 1_000_000 for time in times], pa.timestamp("ns"))),
               path("events-pyarrow-int96"), use_deprecated_int96_timestamps=True)
ids = pa.array([uuid.UUID(visitor).bytes for visitor in visitors], pa.uuid())
pq.write_table(plain.set_column(0, "visitor", ids), path("events-pyarrow-uuid"))
pq.write_table(plain.set_column(0, "visitor", plain["visitor"].dictionary_encode()), path("events-pyarrow-dictionary"))
pq.write_table(plain, path("events-pyarrow-v2"), data_page_version="2.0", compression="gzip")

# pandas: integers with missing values are doubles, and repeated text is a category.
frame = pd.DataFrame({"visitor": visitors, "type": "page", "at_ms": times})
frame["type"] = frame["type"].astype("category")
frame["ad"] = [None] + [7] * (len(visitors) - 1)
frame["day"] = datetime.date(2026, 1, 1)
frame.to_parquet(path("events-pandas"))
frame["at_ms"] = pd.to_datetime(frame["at_ms"], unit="ms")
frame.to_parquet(path("events-pandas-times"))
flat = pd.DataFrame({"visitor": visitors, "segment": 7, "expires_ms": [None] + [later] * (len(visitors) - 1)})
flat.to_parquet(path("segments-pandas"))

# DuckDB: its types for ids and timestamps.
duckdb.sql("SET TimeZone = 'UTC'")
duckdb.register("flat", flat)
duckdb.register("plain", plain)
duckdb.sql(f"COPY (SELECT visitor::UUID AS visitor, segment, to_timestamp(expires_ms / 1000) AS expires_ms FROM flat) "
           f"TO '{path('segments-duckdb')}' (FORMAT parquet)")
for kind in ["TIMESTAMP_MS", "TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMPTZ"]:
    duckdb.sql(f"COPY (SELECT visitor::UUID AS visitor, type, make_timestamp(at_ms * 1000)::{kind} AS at_ms, "
               f"INTERVAL 1 DAY AS took, '{{\"size\": 4}}'::JSON AS properties FROM plain) "
               f"TO '{path('events-duckdb-' + kind.lower())}' (FORMAT parquet)")
