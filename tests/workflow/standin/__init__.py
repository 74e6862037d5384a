"""Stand-ins for a rented GPU machine: hardware, measurements and faults.

The rest of the study is real. `path` goes on PYTHONPATH: its sitecustomize lets `machine` patch code that would inspect
this machine; `worker` replaces the measuring process. Settings are environment variables:

STANDIN_PLACE: folder for the machine's lock. STANDIN_HOST: six hexadecimal digits for the host.
STANDIN_CRASH, STANDIN_HANG, STANDIN_NONSENSE: experiment whose process sometimes dies, hangs or answers nonsense.
"""
