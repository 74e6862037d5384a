"""The study for programs: claim reviews (schema.org), tables of verdicts (Parquet), data packages (Frictionless)."""

from report.metadata.claimreview import as_script, claim_reviews
from report.metadata.datapackage import write_datapackage, write_published
from report.metadata.tables import write_tables

__all__ = ["as_script", "claim_reviews", "write_datapackage", "write_published", "write_tables"]
