"""Computes the people of an export (docs/EXPORT.md, Parquet) from its evidence alone, with Spark, and compares them with
the masters in the export. Prints one line of JSON; exits with 1 if a visitor has another master.

    python3 components.py DIR [--out DIR2]

In each round, every id takes the smallest visitor that it is tied to, and every visitor takes the smallest value of its
ids, until nothing changes. The number of rounds is one more than the number of ids on the longest path through a person.
"""

import argparse
import json
import sys

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, functions as F

ID = ["tenant", "kind", "hash"]
VISITOR = ["tenant", "visitor"]
ROUNDS = 1000


def links(evidence: DataFrame, thresholds: dict[str, int]) -> DataFrame:
    """Visitors and ids whose combined evidence, not flagged and not cancelled since, reaches the tenant's threshold."""
    stands = F.col("cancelled_ms").isNull() | (F.col("last_ms") > F.col("cancelled_ms"))
    counts = (F.col("weight") > 0) & F.col("flag").isNull() & stands
    sure = F.max("weight") == 1000
    together = F.least(F.lit(999), F.round(1000 * (1 - F.product(1 - F.col("weight") / 1000))))
    surest = evidence.where(counts).groupBy("visitor", *ID, "source").agg(F.max("weight").alias("weight"))
    tied = surest.groupBy("visitor", *ID).agg(F.when(sure, 1000).otherwise(together).alias("tied"))
    least = F.lit(1000)
    for tenant, threshold in thresholds.items():
        least = F.when(F.col("tenant") == tenant, threshold).otherwise(least)
    return tied.where(F.col("tied") >= least).select("visitor", *ID)


def masters(visitors: DataFrame, evidence: DataFrame, thresholds: dict[str, int]) -> tuple[DataFrame, int]:
    """The smallest visitor that each visitor is connected to, and the number of rounds."""
    edges = links(evidence, thresholds).persist(StorageLevel.MEMORY_AND_DISK)
    found = visitors.select(*VISITOR, F.col("visitor").alias("found"))
    for rounds in range(1, ROUNDS):
        of_id = edges.join(found, VISITOR).groupBy(*ID).agg(F.min("found").alias("least"))
        of_visitor = edges.join(of_id, ID).groupBy(*VISITOR).agg(F.min("least").alias("least"))
        joined = found.join(of_visitor, VISITOR, "left").select(
            *VISITOR, "found", F.least("found", F.coalesce("least", "found")).alias("least")
        )
        # Cuts the lineage of the data; otherwise each round would plan all previous rounds again.
        joined = joined.localCheckpoint()
        changed = joined.where("least < found").count()
        found = joined.select(*VISITOR, F.col("least").alias("found"))
        if changed == 0:
            return found, rounds
    raise RuntimeError(f"not settled after {ROUNDS} rounds")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("export", help="folder of the export")
    arguments.add_argument("--out", help="new folder for the visitors with the masters found, as Parquet")
    options = arguments.parse_args()
    spark = SparkSession.builder.appName("causeway-components").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    visitors, evidence, people = (
        spark.read.parquet(f"{options.export}/{table}.parquet") for table in ("visitors", "evidence", "people")
    )
    with open(f"{options.export}/manifest.json") as manifest:
        thresholds = json.load(manifest)["link_thresholds"]
    found, rounds = masters(visitors, evidence, thresholds)
    compared = found.join(visitors.select(*VISITOR, "master"), VISITOR)
    different = compared.where("found <> master")
    of_people = people.select("tenant", F.col("master").alias("found"), "devices")
    counted = found.groupBy("tenant", "found").agg(F.count("*").alias("visitors"))
    people_differ = counted.join(of_people, ["tenant", "found"], "full").where("not (visitors <=> devices)").count()
    report = {
        "visitors": compared.count(),
        "people": counted.count(),
        "rounds": rounds,
        "visitors_that_differ": different.count(),
        "people_that_differ": people_differ,
    }
    if options.out:
        found.withColumnRenamed("found", "master").write.parquet(options.out)
    print(json.dumps(report))
    spark.stop()
    return 1 if report["visitors_that_differ"] or people_differ else 0


if __name__ == "__main__":
    sys.exit(main())
