"""What the paper says beside what its runs give. A new claim is a row of `claims.csv` and a line in
`ours.OURS`."""

from looped.claims.tables import claims_table, count_table, published_range, split_table

__all__ = ["claims_table", "count_table", "published_range", "split_table"]
