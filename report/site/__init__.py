"""The published site: what stands beside the page, so that any static host serves all of it as it is.

Modules are imported one by one: the page itself asks `paths` and `compare`, which need nothing that draws.
"""
