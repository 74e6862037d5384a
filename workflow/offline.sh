# Prepare this shell, in the project's folder, for the wheels from workflow/bundle.sh:
#     . workflow/offline.sh && python3 -m experiments preflight
# Also installs wheels added later. PYTHON: interpreter for measuring; with all packages installed it needs no bundle.
# Uses the bundle's Vulkan loader if the system has none.

prepare_offline() {
    local python=${PYTHON:-python3} bundle=${BUNDLE:-build/bundle} site wheel driver
    local new=()
    if [ ! -d "$bundle" ]; then
        "$python" -c 'import snakemake, pandera, mlxtend' 2>/dev/null && return
        echo "error: $bundle: no such folder: workflow/bundle.sh makes it, where there is a network" >&2
        return 2
    fi
    bundle=$(realpath "$bundle")
    site=$bundle/site
    for wheel in "$bundle"/*.whl; do
        [ ! -e "$wheel" ] || grep -qsxF "${wheel##*/}" "$site/.wheels" || new+=("$wheel")
    done
    if [ ${#new[@]} -gt 0 ]; then
        rm -rf "$site.part"
        "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site.part" "${new[@]}" || return
        mkdir -p "$site"
        cp -r "$site.part/." "$site" || return
        printf '%s\n' "${new[@]##*/}" >> "$site/.wheels"
        rm -r "$site.part"
    fi
    export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
    if [ -d "$bundle/lib" ] && ! "$python" -c 'import ctypes; ctypes.CDLL("libvulkan.so.1")' 2>/dev/null; then
        export LD_LIBRARY_PATH="$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    fi
    # Vulkan loaders search only /etc and /usr/share; containers may have NVIDIA's driver elsewhere.
    driver=$(find -L /usr/local /opt -maxdepth 6 -path '*/vulkan/icd.d/*nvidia*.json' 2>/dev/null | head -n 1 || true)
    if [ -n "$driver" ] && [ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ]; then
        # VK_ICD_FILENAMES is for loaders before 1.3.207.
        export VK_DRIVER_FILES="$driver" VK_ICD_FILENAMES="$driver"
    fi
}

prepare_offline
