"""What GPUs that no node has measured would do: a roofline from their datasheets, scaled by what measured chips reach.

A prediction is no measurement: it has a tier of its own, below all others, and stands in columns and sections of its
own. Nothing here is read by the judge.
"""

from report.quantities import TIERS as KNOWN

TIER = "predicted"
# From the strongest evidence to the weakest.
TIERS = (*KNOWN, TIER)
