"""Models behind an HTTP server, and open-loop load from a separate process, on loopback.

`services` defines the services, `server` serves them, `http_load` sends requests, `server_processes` starts
the processes for server and load.
"""
