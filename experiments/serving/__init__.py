"""Models behind a real HTTP server, and a load on it that does not wait: each in a process of its own, on loopback.

`services` says what is served, `server` serves it, `load` asks for it, `process` starts and ends both.
"""
