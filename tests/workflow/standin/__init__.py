"""Stand-ins for a rented GPU machine: hardware, measurements and faults.

All other parts of the study are real. The folder `path` goes on PYTHONPATH: its sitecustomize lets `machine` patch the
code that would inspect this machine. `worker` replaces the measuring process. The settings are these environment
variables:

STANDIN_PLACE: folder for the machine's lock. STANDIN_HOST: six hexadecimal digits for the host.
STANDIN_CRASH, STANDIN_HANG, STANDIN_NONSENSE: experiment whose process sometimes dies, hangs or answers nonsense.
"""
