"""The paper's claims, with computed counterparts and verdicts.

A new claim is one row of `runs/paper/claims.csv` and one line in `computed.COMPUTED`.
"""

from looped.claims.tables import claims_table, count_table, published_range, split_table

__all__ = ["claims_table", "count_table", "published_range", "split_table"]
