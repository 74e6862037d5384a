"""Code that `experiments` and `report` share: the sample table, the node record, file access and errors.

`experiments` and `report` import this package, but not each other. This package neither measures nor judges.
"""
