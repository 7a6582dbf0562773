"""Counts people with DuckDB on Parquet, of a sample and of all; prints each count with its median milliseconds."""

import statistics
import sys
import time

import duckdb

source, parquet, sample, conditions, week, rounds = sys.argv[1:]
db = duckdb.connect()
# The progress bar would be written to standard output, between the results.
db.execute("SET enable_progress_bar = false")
names = ["bucket", "city", "age", "vip", "held", "bought", "person"]
types = ["USMALLINT", "UTINYINT", "UTINYINT", "UTINYINT", "UTINYINT", "UINTEGER", "UINTEGER"]
columns = ", ".join(f"'{name}': '{kind}'" for name, kind in zip(names, types))
read = f"read_csv('{source}', header = false, columns = {{{columns}}})"
db.execute(f"COPY (SELECT * FROM {read}) TO '{parquet}' (FORMAT parquet)")
for where in (f"{sample} AND {conditions} {week}", f"{conditions} {week}"):
    question = f"SELECT count(*) FROM '{parquet}' WHERE {where}"
    times = []
    for _ in range(int(rounds)):
        start = time.perf_counter()
        found = db.execute(question).fetchone()[0]
        times.append((time.perf_counter() - start) * 1e3)
    print(found, statistics.median(times))
