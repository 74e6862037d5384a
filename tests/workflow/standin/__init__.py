"""Stand-ins for a rented machine with a GPU: its hardware, its measurements, and the faults that it has.

Everything else of a study is the real thing. `path` is a folder for PYTHONPATH: its sitecustomize puts `machine` in the
place of code that would look at this machine; `worker` answers in the place of the process that measures. Settings are
variables of the environment:

STANDIN_PLACE: a folder for files of which a machine has one. STANDIN_HOST: six hexadecimal digits of a host.
STANDIN_CRASH, STANDIN_HANG, STANDIN_NONSENSE: an experiment whose process dies, hangs or answers nonsense now and then.
"""
