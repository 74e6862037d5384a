#!/usr/bin/env bash
# Measure a machine by ssh: copy the project's committed files and missing wheels there, run workflow/measure-offline.sh
# with the remaining arguments, and copy the results back:
#     bash workflow/measure-over-ssh.sh me@there results/machines/there --config preset=quick
# If the connection breaks, the machine goes on measuring, and the same command resumes, also on another host of the same
# kind. PYTHON: remote interpreter. FOLDER: remote project folder. PRESET: local file, copied to preset.yaml there.
# SSH: command ("ssh -p 2222").
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; [ "${1:-}" = --help ]; exit; }
host=$1 here=$2
shift 2
home=$(cd "$(dirname "$0")/.." && pwd)
python=$(printf %q "${PYTHON:-python3}")
there=$(printf %q "${FOLDER:-does-ai-need-a-gpu}")
read -ra ssh <<< "${SSH:-ssh} -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15"
on_host() { "${ssh[@]}" -- "$host" "cd $there 2>/dev/null || { mkdir -p $there && cd $there; }; $1"; }
quoted() { printf ' %q' "$@"; }

# Hooks export GIT_DIR and similar variables for another repository.
unset $(git rev-parse --local-env-vars)
top=$(git -C "$home" rev-parse --show-toplevel) && [ "$top" -ef "$home" ] || {
    echo "error: $home is not the top folder of a git checkout: clone the project, what is committed is copied there" >&2
    exit 2
}
commit=$(git -C "$home" rev-parse HEAD)
[ -z "$(git -C "$home" status --porcelain --untracked-files=no)" ] || echo "note: what is not committed here is not copied there"
if [ "$(on_host 'cat .commit 2>/dev/null || true')" != "$commit" ]; then
    echo "copying the project to the machine"
    # Remove old files first, which would be measured too. Write .commit last, to mark a complete copy.
    git -C "$home" archive HEAD -- . ':!.commit' ':!data/editions' ':!docs' ':!tests' |
        on_host "rm -rf .commit contract experiments report workflow && tar -xf - && echo $commit > .commit"
fi
[ -z "${PRESET:-}" ] || on_host "cat > preset.yaml" < "$PRESET"
if ! on_host "$python -c 'import snakemake, pandera, mlxtend' 2>/dev/null || test -d build/bundle"; then
    kind=$(on_host "$python -c 'import platform as p; print(*p.python_version_tuple()[:2], sep=\".\"); print(p.machine())'")
    echo "collecting the wheels for its Python ${kind/$'\n'/ on }"
    # shellcheck disable=SC2086  # two words
    (cd "$home" && bash workflow/bundle.sh $kind)
    tar -cC "$home/build" bundle | on_host "rm -rf build && mkdir -p build/part && tar -xC build/part -f - && mv build/part/bundle build"
fi
# Resume the rounds on a host without results.
if [ -e "$here/results/nodes" ] && ! on_host "test -e results/nodes"; then
    tar -cC "$here" results | on_host "tar -xf -"
fi
status=0
# Bash reads .bashrc if these variables suggest sshd, and .bashrc may put another Python first.
on_host "unset SSH_CLIENT SSH2_CLIENT; PYTHON=$python bash workflow/measure-offline.sh $(quoted "$@")" || status=$?
mkdir -p "$here"
on_host "tar -cf - --exclude=.run.lock results" | tar -xC "$here" -f - || status=1
exit "$status"
