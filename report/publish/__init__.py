"""Machine-readable output: claim reviews (schema.org), verdict tables (Parquet), data packages (Frictionless)."""

from report.publish.claimreview import claim_reviews, script_element
from report.publish.datapackage import is_listed, write_published

__all__ = ["claim_reviews", "is_listed", "script_element", "write_published"]
