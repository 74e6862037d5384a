# Settings, checks before measuring, and input functions.

from datetime import datetime, timezone
from functools import cache

from snakemake.logging import logger

from contract.arguments import expand_home
from contract.errors import StudyError
from contract.child_processes import COORDINATOR, available_cpus, forward_signals
from contract.files import RUN_LOCK, check_bounds, acquire_lock, read_json
from contract.looks import further_stages
from contract.schema import check_document
from experiments.jobs import add_rounds
from report.pages.site_address import normalize_address
from workflow.result_files import (
    is_measured,
    session_is_due,
    unusable_rounds,
    usable_further_rounds,
    usable_plan,
    usable_record,
)

# Make `python` in shell commands this interpreter.
os.environ.update(
    PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]),
    # Make this project importable from every folder.
    PYTHONPATH=os.pathsep.join(
        filter(None, [str(HOME.resolve()), os.environ.get("PYTHONPATH")])
    ),
    # Logs are read as UTF-8.
    PYTHONIOENCODING="utf-8",
)
# When `make` or this process ends, stop this process and its children.
# Do not pass on the caller's ID, which is meaningless on another computer.
# Kill them after a delay, because Snakemake sometimes waits for a job that a signal has ended.
forward_signals(int(os.environ.pop("STUDY_CALLER_PID", 0)), grace_s=30.0)
os.environ[COORDINATOR] = str(os.getpid())

# Free bytes required for samples, tables and the report.
ROOM = 300_000_000


# Time for the decision if another session begins; it must not change while the job graph grows.
STARTED = datetime.now(timezone.utc)


def stop(message):
    """End the run with one line. A WorkflowError would also print its position in the workflow."""
    for handler in logger.handlers:
        if isinstance(handler, Progress):
            handler.show_buffered()  # print earlier messages first
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def run_or_stop(package, *words):
    """Run a package's command; return its output, or stop with its error."""
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


def check_config():
    try:
        check_bounds(config, "configuration")
        expand_homes(config)
        check_document(
            dict(config),
            read_json(HOME / "workflow" / "schemas" / "study.schema.json"),
            "configuration",
        )
        config["url"] = normalize_address(config["url"])
        for settings in (config["machines"] or {}).values():
            expand_homes(settings or {})
    except StudyError as mistake:
        stop(mistake)


def require_writable(folder):
    """Stop with one line unless `folder` can be made or written. Snakemake would print a traceback."""
    place = Path(folder).absolute()
    while not place.exists() and not place.is_symlink() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        stop(f"{folder}: cannot be written ({place} is not a folder)")
    if not os.access(place, os.W_OK):
        stop(f"{folder}: cannot be written ({place} is read-only for you)")


check_config()
# A scheduler's profile sets the number of jobs but not of cores. In that case, take this machine's cores.
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
# Snakemake writes to the working directory, too.
for folder in (RESULTS, "."):
    require_writable(folder)


MODELS = str(Path(config["models"]).resolve()) if config["models"] else ""
MODELS_WORDS = ["--models", MODELS] if MODELS else []
if MODELS and workflow.is_main_process:
    if any("ssh" in (about or {}) for about in (config["machines"] or {}).values()):
        stop("models: not sent to machines that are reached by ssh: measure them there")
    run_or_stop("experiments", "check", *MODELS_WORDS)


@cache
def preset_facts(preset):
    """Check a preset and return its facts."""
    words = ["--json", "--preset", preset, *MODELS_WORDS]
    if usable_record(NODE):
        words += ["--node", NODE]
    return json.loads(run_or_stop("experiments", "check", *words))


PRESET = preset_facts(config["preset"])
MACHINES = Machines(config, RESULTS, lambda preset: preset_facts(preset)["budget_min"])
OWN_NODES = [
    MACHINES.file(machine, "results/nodes") for machine in MACHINES.settings
] or [f"{RESULTS}/nodes"]
for machine in MACHINES.settings:
    preset_facts(MACHINES.setting(machine, "preset"))
if workflow.is_main_process:
    MACHINES.request_measurements()
# Arguments for `experiments plan`. A rule adds the node's record; without it, the command inspects this machine.
PLAN_WORDS = ["--preset", config["preset"], *MODELS_WORDS]
if config["budget_min"]:
    PLAN_WORDS += ["--budget", str(config["budget_min"])]
# Options for the page and the site: address and previous edition.
PUBLISHED_WORDS = [
    word
    for name in ("url", "previous")
    if config[name]
    for word in (f"--{name}", config[name])
]
if config["previous"]:
    # Compare the previous edition with itself, so that errors in it are reported before measuring.
    run_or_stop("report", "compare", config["previous"], config["previous"])


HELD_LOCK = None


def hold_run_lock():
    """Take the run lock, and stop if the disk is nearly full.

    If another run holds the lock, stop, or wait if the settings say so. A kernel lock, unlike Snakemake's lock, is
    always released when this process ends.
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
    """Stop a run (warn in a dry run) if the device that the settings require is missing.

    `onstart` is not enough, since Snakemake skips it when nothing is left to do. Do nothing for --report, --lint and
    similar.
    """
    if config["require"] == "any" or MACHINES.settings:
        return
    if workflow.execution_settings is None or not workflow.is_main_process:
        return
    command = [
        "experiments",
        "probe",
        "--require",
        config["require"],
        "--option",
        f"preset={config['preset']}",
    ]
    if not workflow.dryrun:
        hold_run_lock()
        run_or_stop(*command)
        return
    answer = subprocess.run([sys.executable, "-m", *command], capture_output=True)
    if answer.returncode:
        complaint = answer.stderr.decode(errors="replace").strip()
        print(f"warning: {complaint.removeprefix('error: ')}", file=sys.stderr)


NOTED = set()


def force_files(*files):
    """Force files to be remade although they exist, and print a note once per file.

    Snakemake checks neither the content nor the missing inputs of an existing file (snakemake#1978), and treats a
    checkpoint as finished if any output exists (snakemake#3879).
    """
    workflow.dag.forcefiles.update(files)
    for file in files:
        if Path(file).exists() and file not in NOTED:
            NOTED.add(file)
            print(
                f"note: {file} is made again: it, or a file that belongs to it, is lost, damaged or for other settings",
                file=sys.stderr,
            )


def discover_outputs():
    """Return the outputs of `discover`; run it again unless all outputs are usable for these settings."""
    request = {"sweeps": PRESET["digest"], "budget_min": config["budget_min"]}
    plan = usable_plan(PLAN)
    if not usable_record(NODE) or plan is None or plan.request not in ({}, request):
        force_files(NODE, PLAN)
    return checkpoints.discover.get().output


def this_node():
    """Return this machine's record after discovery."""
    return usable_record(discover_outputs().node) or stop_untouched(NODE)


def this_plan():
    """Return this machine's plan after discovery."""
    return usable_plan(discover_outputs().plan) or stop_untouched(PLAN)


def stop_untouched(file):
    stop(
        f"{file}: is missing or damaged, and --touch makes nothing: give the command without it"
    )


def rounds():
    return range(1, this_plan().rounds + 1)


def stage_file(stage):
    return f"{RESULTS}/further/{stage}.json"


def wanted_stages():
    """List the stages of further rounds: those that earlier commands began, and those that the settings ask for.

    If a look has no rounds before it, later looks would see the same data, so they are not asked for.
    """
    stages, ended, next_session = [], not config["until_decided"], session_may_begin()
    for stage in further_stages(this_plan().rounds):
        further = usable_further_rounds(stage_file(stage))
        if stage.startswith("session"):
            number = int(stage.partition("-")[2])
            asked = number <= config["sessions"] and next_session
            next_session = next_session and further is not None
        else:
            asked, ended = not ended, ended or bool(further and not further["rounds"])
        if Path(stage_file(stage)).exists() or asked:
            stages.append(stage)
    return stages


@cache
def session_may_begin():
    """Tell if the finished rounds ended so long before this command that further rounds begin another session."""
    node = f"{RESULTS}/nodes/{this_node()['id']}/node.json"
    return session_is_due(usable_record(node), STARTED)


def further_files(before=None):
    """List the files with further rounds, after their checkpoints. before: list only the stages that begin earlier."""
    rounds_of = further_stages(this_plan().rounds)
    files = []
    for stage in wanted_stages():
        if before is None or rounds_of[stage][0] < before:
            if usable_further_rounds(stage_file(stage)) is None:
                force_files(stage_file(stage))
            kind, _, number = stage.partition("-")
            files += getattr(checkpoints, kind).get(number=number).output
    return files


def first_round(stage):
    """Return the number of a stage's first round. Stop if the plan has no such stage."""
    rounds_of = further_stages(this_plan().rounds)
    if stage not in rounds_of:
        stop(
            f"{stage}: a plan with {this_plan().rounds} rounds has only {', '.join(rounds_of)}"
        )
    return rounds_of[stage][0]


def whole_plan(before=None):
    """Return this machine's plan with its further rounds. before: as in `further_files`."""
    further = [
        usable_further_rounds(file) or stop_untouched(file)
        for file in further_files(before)
    ]
    return add_rounds(this_plan(), further) if further else this_plan()


def plan_of_round(number):
    """Return the plan in force for a round: with the stages of further rounds up to its own."""
    number = int(number)
    return whole_plan(number + 1) if number > this_plan().rounds else this_plan()


def stages_of_round(number):
    """List the files with further rounds that are in force for a round; none for the plan's own rounds."""
    number = int(number)
    return further_files(number + 1) if number > this_plan().rounds else []


def planned_job(wildcards):
    plan = plan_of_round(wildcards.round)
    return plan.job(wildcards.experiment, wildcards.device.replace("-", ":"))


def planned_digest(wildcards):
    """Return the digest of a job's plan: when it changes, the job is measured again."""
    return planned_job(wildcards).digest(int(wildcards.round))


def job_priority(wildcards):
    """Return a job's priority: the number of jobs from this one to the end of the plan."""
    name = f"{wildcards.experiment}.{wildcards.device}"
    order = [(number, job.name) for number, job in plan_of_round(wildcards.round).order]
    return len(order) - order.index((int(wildcards.round), name))


def round_files(round, first_stage=False):
    """List the round files to measure on this machine, for all experiments and devices in the plan.

    first_stage: only the plan's first stage.
    """
    node = this_node()["id"]
    required_metadata = {
        f"{RESULTS}/nodes/{node}/{job.name}.{round}.parquet": {
            "schema": 2,  # in version 1, the protocol is another count
            "protocol": job.protocol,
            "planned": job.digest(int(round)),
        }
        for job in plan_of_round(round).round_jobs(int(round))
        if not first_stage or job.stage == this_plan().order[0][1].stage
    }
    try:
        force_files(*unusable_rounds(required_metadata, node))
    except StudyError as stranger:
        stop(stranger)
    return list(required_metadata)


def all_round_files(wildcards):
    """List the files for all rounds, with further rounds."""
    return files_of_rounds()


def files_of_rounds(before=None):
    """List the files for all rounds. before: list only those of rounds with smaller numbers."""
    plan = whole_plan(before)
    last = plan.rounds if before is None else before - 1
    return [file for round in range(1, last + 1) for file in round_files(round)]


def sealed_records(wildcards):
    """Return this machine's sealed record; with several machines, their `ended` files."""
    if MACHINES.settings:
        return [ended_file(machine) for machine in MACHINES.settings]
    check_required_device()
    record = f"{RESULTS}/nodes/{this_node()['id']}/node.json"
    # List the files in any case: of the checkpoints in a chain, Snakemake finds only those that a job itself asks for.
    files = all_round_files(wildcards)
    missing = [file for file in files if not os.path.exists(file)]
    if usable_record(record) and not set(missing) & set(
        files_of_rounds(rounds()[-1] + 1)
    ):
        # Only further rounds are missing, which is no reason for a note.
        NOTED.add(record)
    if missing or not usable_record(record):
        force_files(record)
    return record


def ended_file(machine):
    """Return a machine's `ended` file; rerun its job if the measured node is missing."""
    file, nodes = (MACHINES.file(machine, name) for name in ("ended", "results/nodes"))
    try:
        if machine not in MACHINES.failures() and not is_measured(nodes):
            force_files(file)
    except StudyError as stranger:
        stop(stranger)
    return file


def first_page(wildcards):
    """Return the target for the page after round 1; nothing if round 2 is already measured or there is no round 2."""
    if MACHINES.settings:
        return []
    if all(
        Path(file).exists()
        for number in rounds()[1:2]
        for file in round_files(number, True)
    ):
        return []
    return f"{RESULTS}/nodes/{this_node()['id']}/.preliminary"


def match_files(folder, *patterns):
    """Return sorted files that match the patterns; stop if a pattern matches none, which would hide a mistake."""
    paths = set()
    for pattern in patterns:
        matches = [str(path) for path in Path(folder).glob(pattern) if path.is_file()]
        if not matches:
            stop(f"{Path(folder) / pattern}: there is no such file")
        paths.update(matches)
    return sorted(paths)


def code_files(*patterns):
    """Return program files in `report` whose changes trigger judging or rendering, but never measuring."""
    return match_files(HOME / "report", *patterns)
