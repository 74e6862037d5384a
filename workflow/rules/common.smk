# Settings, and what has to be true before anything is measured.

from functools import cache

from snakemake.logging import logger

from contract.arguments import expand_home
from contract.errors import StudyError
from contract.child_processes import COORDINATOR, available_cpus, forward_signals
from contract.files import RUN_LOCK, check_bounds, acquire_lock, read_json
from contract.schema import check_document
from workflow.result_files import (
    is_measured,
    unusable_rounds,
    usable_plan,
    usable_record,
)

# What a shell command calls `python` is the interpreter that runs this workflow.
os.environ.update(
    PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]),
    # And its packages are these, wherever they are called from.
    PYTHONPATH=os.pathsep.join(
        filter(None, [str(HOME.resolve()), os.environ.get("PYTHONPATH")])
    ),
    # Their logs are read as UTF-8.
    PYTHONIOENCODING="utf-8",
)
# What this process has asked for ends with it, however that happens, as it ends with the `make` that asked for it.
# Not inherited further: on another computer it is another process.
# Snakemake has been seen to wait for a job that a signal had ended: then it is killed.
forward_signals(int(os.environ.pop("STUDY_CALLER_PID", 0)), grace_s=30.0)
os.environ[COORDINATOR] = str(os.getpid())

# Raise this when rounds measured before must not be mixed with those measured after.
PROTOCOL = 3
# Bytes that a run may need for samples, tables and the report.
ROOM = 300_000_000


def stop(message):
    """End the run with one line: a WorkflowError would add where in the workflow it was raised."""
    for handler in logger.handlers:
        if isinstance(handler, Progress):
            handler.show_held()  # or it would come after
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def tell_or_stop(package, *words):
    """Run a command of one of the packages; its answer, or its one line of complaint."""
    answer = subprocess.run(
        [sys.executable, "-m", package, *words],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    if answer.returncode:
        complaint = answer.stderr.strip().removeprefix("error: ")
        stop(complaint or f"{package} ended with exit code {answer.returncode}")
    return answer.stdout


def expand_homes(settings):
    for name in {
        "preset",
        "models",
        "results",
        "published",
        "previous",
    } & settings.keys():
        if isinstance(settings[name], str):
            settings[name] = expand_home(settings[name])


def checked_config():
    try:
        check_bounds(config, "configuration")
        expand_homes(config)
        check_document(
            dict(config),
            read_json(HOME / "workflow" / "schemas" / "study.schema.json"),
            "configuration",
        )
        for settings in (config["machines"] or {}).values():
            expand_homes(settings or {})
    except StudyError as mistake:
        stop(mistake)


def writable(folder):
    """Stop unless `folder` can be made or written; Snakemake would answer with a traceback."""
    place = Path(folder).absolute()
    while not place.exists() and not place.is_symlink() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        stop(f"{folder}: cannot be written ({place} is not a folder)")
    if not os.access(place, os.W_OK):
        stop(f"{folder}: cannot be written ({place} is read-only for you)")


checked_config()
# A scheduler's profile says how many jobs there may be, and not how many cores this machine has.
CORES = workflow.resource_settings.cores
CORES = available_cpus() if CORES is None else CORES
if CORES < 1:
    stop(f"--cores {CORES}: measuring needs at least 1, or all")
RESULTS = config["results"].rstrip("/")
NODE, PLAN = f"{RESULTS}/node.json", f"{RESULTS}/plan.json"
PUBLISHED = config["published"] or str(HOME / "data" / "nodes")
if not any(Path(PUBLISHED).glob("*/node*.json")):
    stop(
        f"{PUBLISHED}: holds no node: name a folder of nodes as `published`, or nothing for those of the study"
    )
# Snakemake keeps its own notes in the working directory.
for folder in (RESULTS, "."):
    writable(folder)


MODELS = str(Path(config["models"]).resolve()) if config["models"] else ""
MODELS_WORDS = ["--models", MODELS] if MODELS else []
if MODELS and workflow.is_main_process:
    if any("ssh" in (about or {}) for about in (config["machines"] or {}).values()):
        stop("models: not sent to machines that are reached by ssh: measure them there")
    tell_or_stop("experiments", "check", *MODELS_WORDS)


@cache
def checked_preset(preset):
    """What is to be known of a preset, once it has been found to be one."""
    words = ["--json", "--preset", preset, *MODELS_WORDS]
    if usable_record(NODE):
        words += ["--node", NODE]
    return json.loads(tell_or_stop("experiments", "check", *words))


PRESET = checked_preset(config["preset"])
MACHINES = Machines(
    config, RESULTS, lambda preset: checked_preset(preset)["budget_min"]
)
OWN_NODES = [
    MACHINES.file(machine, "results/nodes") for machine in MACHINES.settings
] or [f"{RESULTS}/nodes"]
for machine in MACHINES.settings:
    checked_preset(MACHINES.of(machine, "preset"))
if workflow.is_main_process:
    MACHINES.ask()
# What `experiments plan` is asked; without a record it looks at this machine.
PLAN_WORDS = ["--preset", config["preset"], *MODELS_WORDS]
if config["budget_min"]:
    PLAN_WORDS += ["--budget", str(config["budget_min"])]
# What the page and the site are told of where they will lie, and of the edition before.
PUBLISHED_WORDS = [
    word
    for name in ("url", "previous")
    if config[name]
    for word in (f"--{name}", config[name])
]
if config["previous"]:
    # To compare it with itself reads all of it: what is wrong with it is told now, not after measuring.
    tell_or_stop("report", "compare", config["previous"], config["previous"])


HELD_LOCK = None


def hold_run_lock():
    """Refuse a second run in the same results, or wait for the first, and a place without room, before any work.

    A kernel lock, in place of Snakemake's: it vanishes with this process, however that ends.
    """
    global HELD_LOCK
    Path(RESULTS).mkdir(parents=True, exist_ok=True)
    while HELD_LOCK is None:
        try:
            HELD_LOCK = acquire_lock(f"{RESULTS}/{RUN_LOCK}")
        except OSError as refusal:
            stop(
                f"{RESULTS}/{RUN_LOCK}: cannot be opened ({refusal.strerror}): remove it"
            )
        if HELD_LOCK is None and not config["wait"]:
            stop(
                f"another run is at work in {RESULTS}: wait for it, or stop it, and give the same command again"
            )
        if HELD_LOCK is None:
            time.sleep(1)
    free = shutil.disk_usage(RESULTS).free
    if free < ROOM:
        stop(
            f"{RESULTS}: {free / 1e6:.0f} MB are free, a run needs {ROOM / 1e6:.0f} MB: free some space"
        )


@cache
def check_required_device():
    """Stop a run, and warn in a dry run, where the device that the settings require is missing.

    `onstart` alone would not do: it is left out where nothing is left to do. --report, --lint and the like run nothing.
    """
    if config["require"] == "any" or MACHINES.settings:
        return
    if workflow.execution_settings is None or not workflow.is_main_process:
        return
    command = ["experiments", "probe", "--require", config["require"]]
    if not workflow.dryrun:
        hold_run_lock()
        tell_or_stop(*command)
        return
    answer = subprocess.run([sys.executable, "-m", *command], capture_output=True)
    if answer.returncode:
        complaint = answer.stderr.decode(errors="replace").strip()
        print(f"warning: {complaint.removeprefix('error: ')}", file=sys.stderr)


NOTED = set()


def make_again(*files):
    """Have files made again although they are there, and say so once.

    Snakemake looks neither into a file nor for the inputs of one that is there (snakemake#1978), and takes a checkpoint
    for finished as long as one of its outputs is there (snakemake#3879).
    """
    workflow.dag.forcefiles.update(files)
    for file in files:
        if Path(file).exists() and file not in NOTED:
            NOTED.add(file)
            print(
                f"note: {file} is made again: it, or a file that belongs to it, is lost, damaged or for other settings",
                file=sys.stderr,
            )


def discovered():
    """The outputs of the checkpoint; it runs again unless all of them can be used for what is asked."""
    asked = {"sweeps": PRESET["digest"], "budget_min": config["budget_min"]}
    plan = usable_plan(PLAN)
    if not usable_record(NODE) or plan is None or plan.asked not in ({}, asked):
        make_again(NODE, PLAN)
    return checkpoints.discover.get().output


def this_node():
    """The record of this machine, once it has been discovered."""
    return usable_record(discovered().node) or stop_untouched(NODE)


def this_plan():
    """Rounds, and what a budget leaves out on this machine."""
    return usable_plan(discovered().plan) or stop_untouched(PLAN)


def stop_untouched(file):
    stop(
        f"{file}: is missing or damaged, and --touch makes nothing: give the command without it"
    )


def rounds():
    return range(1, this_plan().rounds + 1)


def planned(wildcards):
    """What the plan asks of one job, in a few digits: when that changes, the job is measured again."""
    job = this_plan().job(wildcards.experiment, wildcards.device.replace("-", ":"))
    return job.digest(int(wildcards.round))


def turn(wildcards):
    """A job's priority: the number of jobs from it to the end of the plan's order."""
    name = f"{wildcards.experiment}.{wildcards.device}"
    order = [(number, job.name) for number, job in this_plan().order]
    return len(order) - order.index((int(wildcards.round), name))


def jobs(round, first_stage=False):
    """The rounds to measure on this machine: every experiment on every device of which the plan asks something.

    first_stage: only those that run before all other stages.
    """
    node = this_node()["id"]
    asked = {
        f"{RESULTS}/nodes/{node}/{job.name}.{round}.parquet": {
            "protocol": PROTOCOL,
            "planned": job.digest(int(round)),
        }
        for job in this_plan().round_jobs(int(round))
        if not first_stage or job.stage == this_plan().order[0][1].stage
    }
    try:
        make_again(*unusable_rounds(asked, node))
    except StudyError as stranger:
        stop(stranger)
    return list(asked)


def all_jobs(wildcards):
    """The files of all rounds."""
    return [file for round in rounds() for file in jobs(round)]


def sealed(wildcards):
    """The record of this machine, with all its rounds; or that each of several machines has come to an end."""
    if MACHINES.settings:
        return [ended(machine) for machine in MACHINES.settings]
    check_required_device()
    record = f"{RESULTS}/nodes/{this_node()['id']}/node.json"
    if not usable_record(record) or not all(map(os.path.exists, all_jobs(wildcards))):
        make_again(record)
    return record


def ended(machine):
    """The file that says how a machine's job ended; without the node that it measured, the job runs again."""
    file, nodes = (MACHINES.file(machine, name) for name in ("ended", "results/nodes"))
    try:
        if machine not in MACHINES.failed() and not is_measured(nodes):
            make_again(file)
    except StudyError as stranger:
        stop(stranger)
    return file


def first_page(wildcards):
    """What the default target asks for besides the report: the page after round 1, while more rounds are to come."""
    if MACHINES.settings:
        return []
    if all(
        Path(file).exists() for number in rounds()[1:2] for file in jobs(number, True)
    ):
        return []
    return f"{RESULTS}/nodes/{this_node()['id']}/.preliminary"


def files(folder, *patterns):
    """The files in a folder that match these patterns, in order. Each must match some: an empty answer hides a mistake."""
    found = set()
    for pattern in patterns:
        these = [str(path) for path in Path(folder).glob(pattern) if path.is_file()]
        if not these:
            stop(f"{Path(folder) / pattern}: there is no such file")
        found.update(these)
    return sorted(found)


def code(*patterns):
    """Program files whose change is a reason to judge or render again, but never to measure."""
    return files(HOME / "report", *patterns)
