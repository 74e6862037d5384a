"""Code shared by `experiments` and `report`: tables, the node record, files, errors.

Neither package imports the other; both import this one, which neither measures nor judges.
"""
