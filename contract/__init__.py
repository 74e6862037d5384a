"""Code that `experiments` and `report` share: the sample table, the node record, file access and errors.

`experiments` and `report` import this package, but not each other. This package neither measures nor judges.
"""

import sys

# Before imports that an older Python lacks. An older Python has to parse this file.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("error: Python >= 3.11 is needed, this is " + sys.version.split()[0])
