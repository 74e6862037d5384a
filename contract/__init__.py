"""What `experiments` and `report` agree on: tables, the node record, files, errors.

Neither package imports the other; both import this one. It knows nothing of
how anything is measured or judged.
"""
