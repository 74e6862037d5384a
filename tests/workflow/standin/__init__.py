"""Stand-ins for a rented machine with a GPU: what it is, what it measures, and what goes wrong there.

Everything else of a study is the real thing. `path` is a folder for PYTHONPATH: its sitecustomize puts `machine` in the
place of what would look at this machine; `worker` answers in the place of the process that measures, with numbers
from `suite`. Settings are variables of the environment:

STANDIN_COUNTS: the file that `counts` wrote. STANDIN_PLACE: a folder for what a machine has once.
STANDIN_FASTER: how many times as fast time passes (30). STANDIN_SEED: of the noise (0).
STANDIN_HOST: six hexadecimal digits, which host of this kind it is. STANDIN_L3_MIB: its last cache (64).
STANDIN_CRASH, STANDIN_HANG, STANDIN_NONSENSE: an experiment whose process dies, hangs or answers nonsense now and then.
"""
