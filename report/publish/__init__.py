"""Machine-readable output: claim reviews (schema.org), verdict tables (Parquet), data packages (Frictionless)."""

from report.publish.claimreview import claim_reviews, script_element
from report.publish.datapackage import write_datapackage, write_published
from report.publish.verdict_tables import write_tables

__all__ = ["claim_reviews", "script_element", "write_datapackage", "write_published", "write_tables"]
